"""What can a text be read from? Tables, packed files, one long document."""

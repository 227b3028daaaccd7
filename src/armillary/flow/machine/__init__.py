"""What does the machine allow? How many tokens at once, and which memory is kept."""

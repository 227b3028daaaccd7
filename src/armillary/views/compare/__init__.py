"""Two surveys side by side."""

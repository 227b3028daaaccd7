"""Images and sound in place of text: where they come from, a sample made by code, and their patches as tokens."""

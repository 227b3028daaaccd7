"""What do the instruments of heads compute? Scores, null spaces, roles, and the watch itself."""

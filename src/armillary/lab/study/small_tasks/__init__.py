"""What can a part compute at all? Tasks that are trained in seconds."""

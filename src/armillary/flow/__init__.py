"""What passes through a model when it runs."""

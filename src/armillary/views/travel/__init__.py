"""A sentence's trajectory as a picture and as a page."""

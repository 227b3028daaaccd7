"""A sentence's trajectory as a picture, a page and text."""

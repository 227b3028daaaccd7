"""Tables and pictures that belong to no claim."""

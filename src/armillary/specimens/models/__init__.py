"""Models and texts whose geometry is known in closed form; draw 0 of each is the one that the tests read."""

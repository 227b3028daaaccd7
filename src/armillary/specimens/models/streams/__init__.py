"""Which models hold known states in their stream? Spheres, words, senses, drifts, massive tokens, cones."""

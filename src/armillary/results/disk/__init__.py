"""How do results get to disk and back so that nothing is half there, and nothing wrong is read?"""

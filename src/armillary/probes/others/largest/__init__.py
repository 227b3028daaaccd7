"""Where are the largest activations, and what is said of them, part by part?"""

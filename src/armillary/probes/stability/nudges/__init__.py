"""How do small perturbations grow through depth?"""

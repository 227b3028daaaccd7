"""How complex is what a feed-forward layer writes?"""

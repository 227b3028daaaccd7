"""How orthogonal are tokens in the spaces of heads?"""

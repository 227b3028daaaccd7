"""How large are scores of sampled queries, and what would Gaussian weights make of the same states?"""

"""How do correlations and covariances change with depth?"""

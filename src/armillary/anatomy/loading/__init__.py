"""How does a model get here, and is what lies on disk whole and safe to read?"""

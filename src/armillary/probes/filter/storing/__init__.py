"""Which words do units respond to, and which do they write?"""

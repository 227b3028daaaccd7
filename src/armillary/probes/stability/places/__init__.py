"""How do states differ between positions?"""

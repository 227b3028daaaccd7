"""What do the tokens along a head's directions have in common?"""

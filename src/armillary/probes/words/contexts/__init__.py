"""What does context change in the states of a word?"""

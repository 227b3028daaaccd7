"""How many dimensions do clouds of states have?"""

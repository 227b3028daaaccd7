"""How is a batch of a pass read, and who sees what passes?"""

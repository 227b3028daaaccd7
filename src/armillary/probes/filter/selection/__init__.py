"""What do discarded coordinates tell, and what does bringing them back cost?"""

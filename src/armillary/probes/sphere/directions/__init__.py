"""What do direction and length tell, and what does moving along them cost?"""

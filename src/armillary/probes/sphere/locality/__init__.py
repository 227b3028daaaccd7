"""What do balls and neighbours on the sphere look like?"""

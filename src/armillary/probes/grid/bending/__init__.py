"""What do linear maps do on the sphere?"""

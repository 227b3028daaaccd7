"""Which keys do words match in a head, and how few of them?"""

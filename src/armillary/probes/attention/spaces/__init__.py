"""Which directions of the stream does a head see, which not, and how do they lie in the data?"""

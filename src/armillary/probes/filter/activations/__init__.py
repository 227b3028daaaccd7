"""What do hidden units do on a text?"""

"""Which feed-forward layers hold units of known behaviour, and write what is known?"""

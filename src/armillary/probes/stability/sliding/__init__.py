"""How do states change when text is appended or the window slides?"""

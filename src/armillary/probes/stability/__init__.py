"""Chapter D: does a state stay what it was when text is added, when the window slides, when it is pushed a little?"""

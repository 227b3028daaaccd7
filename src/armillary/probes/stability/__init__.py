"""Chapter D: are states stable when text is appended, when the window slides, and when they are perturbed?"""

"""Do single axes and their blocks mean something?"""

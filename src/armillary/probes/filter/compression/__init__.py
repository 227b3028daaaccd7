"""How many bits do hidden coordinates carry before and after the activation?"""

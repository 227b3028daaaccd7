"""Do layers share their gains and axes?"""

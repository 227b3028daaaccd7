"""How do roles of heads come about over checkpoints?"""

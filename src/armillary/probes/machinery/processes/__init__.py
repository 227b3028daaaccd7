"""How is a survey's work spread over threads, processes and machines, and what of it outlives them?"""

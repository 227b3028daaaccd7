"""How are the parts of a Hugging Face block read into canonical form?"""

"""What happens to states while a model writes long texts?"""

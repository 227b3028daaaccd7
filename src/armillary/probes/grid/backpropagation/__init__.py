"""How do gradients of one head depend on another?"""

"""What predicts that a token is predicted badly?"""

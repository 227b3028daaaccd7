"""What is written for papers, spreadsheets and the documentation?"""

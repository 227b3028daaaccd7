"""What does the instrument of words compute? Products of states, their angles, and the watch itself."""

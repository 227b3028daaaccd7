"""Words with two senses, and whether the states of a word tell which sense it has."""

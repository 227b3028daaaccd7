"""What watches a pass: one object per file, with a state that adds."""

"""The experiments of 'Traveling Words' (E1 to E10) on any model."""

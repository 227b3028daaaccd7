"""What do readings that belong to no claim leave behind? Tables, trajectories, maps, a model's health."""

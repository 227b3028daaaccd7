"""Is something wrong with a model? The survey's own measurements, read as an engineer would."""

"""Where are things in decoders of text? One small table per architecture."""

"""What became of a trained arm? Its geometry, what it loses under damage, and where it lies on disk."""

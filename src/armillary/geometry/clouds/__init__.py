"""What shape does a cloud of points have? Its spectrum, dimension, hull, crowding and local spread."""

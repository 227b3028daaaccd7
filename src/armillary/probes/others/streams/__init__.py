"""What shape does the stream have, block by block? Cones, linear fits, and what attention alone leaves."""

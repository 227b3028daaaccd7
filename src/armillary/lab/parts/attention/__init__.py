"""Which kinds of heads are compared? Soft, overlapping, supervised and wide ones, and other scores."""

"""A package beside Armillary that offers it a probe, an instrument and a family."""

"""Chapter F: heads as a grid over axes, linear maps on the sphere, and depth as a change of scale."""

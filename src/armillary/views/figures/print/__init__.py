"""How is a figure drawn without a browser? As static SVG, and for papers."""

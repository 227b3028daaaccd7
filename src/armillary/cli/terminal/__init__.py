"""What do all commands share? Options, and how failures are reported."""

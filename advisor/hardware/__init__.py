"""Hardware: what a machine has, read from it or from a profile."""

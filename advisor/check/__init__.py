"""Pre-flight: what will crash or will not fit, found without importing or running the code under test."""

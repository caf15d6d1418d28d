"""Models: what is named, found and known about it without loading any weights."""

"""Software: combinations of versions that are known not to work, as data."""

"""Does it fit, and is it still what was planned? The only part of a check that loads heavy libraries."""

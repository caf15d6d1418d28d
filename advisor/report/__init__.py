"""Reports: one decision shown on a terminal, as JSON and as a page."""

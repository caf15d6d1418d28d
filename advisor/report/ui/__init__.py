"""The local page of ``advisor ui``: the report with a form above it, for one person on this machine."""

"""The answer as one HTML page: self-contained, for a browser without a network, for print and for a screen reader."""

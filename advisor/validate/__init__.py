"""Predicted beside measured: run records held against the same models that plans are made with."""

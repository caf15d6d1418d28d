"""Decide: rules as data, walked over typed facts; every answer can say why and why not."""

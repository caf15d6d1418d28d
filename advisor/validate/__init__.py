"""Predicted beside measured: run records held against the same models that plans are made with."""

from advisor import callable_room

callable_room(__name__)

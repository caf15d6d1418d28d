"""Pre-flight: what will crash or will not fit, found without importing or running the code under test."""

from advisor import callable_room

callable_room(__name__)

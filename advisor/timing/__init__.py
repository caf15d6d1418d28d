"""Time: load, step and token time from compute, memory and link rates."""

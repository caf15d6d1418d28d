"""The trace: a step of the real model, cut to a few layers, run on fake tensors; no memory, no GPU."""

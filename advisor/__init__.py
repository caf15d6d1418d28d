"""advisor: decide how to load, fine-tune or serve a model on the GPUs at hand, run it, and check the prediction."""

__version__ = "0.1.0"

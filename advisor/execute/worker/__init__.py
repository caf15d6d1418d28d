"""The worker: one rank of a run. The same code loads real weights and rehearses with random ones."""

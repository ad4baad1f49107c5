"""PHPMQ's server: a queue is a topic with one work group, a window is a consumer's credit. `tcp` first, then `console`."""

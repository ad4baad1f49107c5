"""Real clients and real probes against polymq, and the same against nsqd 1.3.0 as the control."""

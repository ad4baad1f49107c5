"""Programs over the Python clients of NSQ. Each does one job (tests/interop/jobs.py) in a process of its own."""

"""What `bench/run.py` is made of: servers under test, the load generator, the rows of the table, the machine, the report."""

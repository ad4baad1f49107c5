"""The sources `nsq`, `nats` and `phpmq`: a stream over a spool, which a thread of the source or a spooler elsewhere fills.

Read next: `source.py`, what Spark calls; `planning.py`, what the driver does; `reading.py`, what executors do.
"""

"""Receiver, write-ahead spool, acknowledgement: how messages of brokers without offsets get offsets. docs/SPOOL.md is for users.

NSQ, PHPMQ and NATS cannot be asked for a message a second time, and Spark must ask. So a receiver writes what comes to
disk, acknowledges it on the connection it came over once it is durable, and readers read the files. Read next:
`spooler.py` (the loop), `segments.py` (the writer's files), `reading.py` (the readers').
"""

"""The broker itself: topics, partitions, three ways to consume, leases, schedule, access, statistics.

Nobody's protocol and no I/O: calls run to their end and return effects as data. Read in this order: `ports.py` (what
it stands on), `catalogue.py`, `topic.py`, `lease_window.py`, `work_group.py`, `schedule.py`, `broker.py`,
`session.py` (the only door). Messages that are live, and kept nowhere, are the business of `interest/`.
"""

"""PHPMQ's protocol as bytes and events, both sides of the wire, without any I/O.

Server side: `decode` turns what a client sends into the events of `events`; `encode` writes dispatches straight from log
records; `problems` names what may be wrong. Client side: `frames`. Both: `codes`, `ids`, `names`, `settings`.

Read first: `codes`, then `events`, then `decode`.
"""

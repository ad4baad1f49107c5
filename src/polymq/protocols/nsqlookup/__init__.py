"""nsqlookupd's TCP protocol V1 as bytes and events, both sides of the wire, without any I/O.

Nodes that have topics (nsqd, polymq) tell a directory about them here; consumers ask it over HTTP. Directory's side:
`decode` turns what a node sends into the events of `events`, `states` says what is allowed when, `problems` has the
words of every refusal, `encode` the answers. Node's side: `frames`. Both: `identify`, `settings`.

Read first: `events`, then `decode`.
"""

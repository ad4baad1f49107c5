"""NSQ's TCP protocol V2 as bytes and events, both sides of the wire, without any I/O.

Server side: `decode` turns what a client sends into the events of `events`, with `commands` for the single lines,
`states` for what is allowed when and `problems` for the words of every refusal; `identify` negotiates; `encode`
writes frames straight from log records. Client side: `frames`. Both: `names`, `settings`.

Read first: `events`, then `decode`.
"""

"""NATS as bytes and events, without any I/O: what clients say, what servers of a cluster say to each other, and the answers.

`decode` turns what a client or another server sends into the events of `events`, with `commands` for the lines that
carry no message and `problems` for the words of every refusal; `info` reads and writes the JSON of INFO and CONNECT;
`subjects` says which names are valid and which are reserved; `encode` writes messages straight from a live batch.
`conf` reads a configuration file of nats-server into a tree (`conf_tree`), with `conf_lexer` for the single words.

Read first: `events`, then `decode`.
"""

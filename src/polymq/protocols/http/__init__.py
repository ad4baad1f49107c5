"""HTTP/1.1 without I/O: requests out of bytes, answers into bytes, a table of endpoints.

It serves nsqd's HTTP interface and the product's own. `decode.py` reads, `encode.py` writes, `router.py` chooses,
`target.py` knows Go's rules for paths and queries; `client.py` is the other side, for questions that we ask. The values
that travel are in `polymq/wire/exchange.py`.
"""

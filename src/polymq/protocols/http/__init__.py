"""HTTP/1.1 on the server side, without I/O: requests out of bytes, answers into bytes, a table of endpoints.

It serves nsqd's HTTP interface and the product's own. `decode.py` reads, `encode.py` writes, `router.py` chooses,
`target.py` knows Go's rules for paths and queries. The values that travel are in `polymq/wire/exchange.py`.
"""

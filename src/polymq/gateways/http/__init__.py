"""The HTTP gateway: one connection's requests, answered in order by the endpoints of a table."""

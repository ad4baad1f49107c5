"""Sans-I/O codecs, one package per protocol: bytes to events and back, knowing neither sockets nor the broker."""

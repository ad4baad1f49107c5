"""What becomes of a message's fields between protocols: found out by sending samples, and written down as docs/CONVERSIONS.md."""

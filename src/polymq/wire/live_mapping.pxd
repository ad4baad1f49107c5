from polymq.wire.inline cimport bytes_at, copy, equal_bytes

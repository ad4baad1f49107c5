from polymq.wire.inline cimport equal_bytes

from polymq.wire.inline cimport copy, equal_bytes, store_u32

from polymq.wire.inline cimport copy, store_i64, store_u32

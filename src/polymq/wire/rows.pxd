from polymq.wire.inline cimport copy, load_u32, store_i64, store_u32

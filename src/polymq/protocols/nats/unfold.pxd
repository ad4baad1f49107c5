from polymq.wire.inline cimport copy, equal_bytes, load_i64, load_u32, sized_end, store_u32

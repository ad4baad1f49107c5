from polymq.wire.inline cimport copy, load_i64, load_u32, sized_end, store_u32

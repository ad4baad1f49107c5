from polymq.wire.inline cimport load_i64, load_u32

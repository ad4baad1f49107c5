from polymq.wire.inline cimport load_u32

from polymq.wire.inline cimport load_i64, store_i64

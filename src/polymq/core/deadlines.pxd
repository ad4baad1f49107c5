from polymq.wire.inline cimport store_i64

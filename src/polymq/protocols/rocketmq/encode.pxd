from polymq.wire.inline cimport copy, store_u32_be

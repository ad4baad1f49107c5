from polymq.wire.inline cimport bytes_at, copy, equal_bytes, find_blank, hash_bytes, load_i64, load_u32, load_u32_be, sized_end, store_i64, store_i64_be, store_u32, store_u32_be

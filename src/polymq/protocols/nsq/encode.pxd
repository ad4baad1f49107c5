from polymq.wire.field_counts cimport count_fields
from polymq.wire.inline cimport copy, load_i64, load_u32, store_i64_be, store_u32_be

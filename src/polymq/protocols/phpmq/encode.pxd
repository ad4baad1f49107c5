from polymq.protocols.phpmq.ids cimport write_id
from polymq.wire.field_counts cimport count_fields
from polymq.wire.inline cimport copy, load_i64, load_u32

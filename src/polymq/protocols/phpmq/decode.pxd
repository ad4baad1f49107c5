from polymq.protocols.phpmq.ids cimport read_id
from polymq.wire.inline cimport load_i64

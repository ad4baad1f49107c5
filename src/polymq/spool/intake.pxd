from polymq.spool.window cimport IdWindow
from polymq.wire.inline cimport copy, load_i64, load_u32, load_u32_be, store_i64, store_u32

from polymq.protocols.nsq.line_runs cimport read_finishes, repeats
from polymq.wire.inline cimport load_u32_be

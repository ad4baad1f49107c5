from polymq.protocols.nats.rows cimport Rows
from polymq.wire.inline cimport find_blank, load_u32

from polymq.protocols.rocketmq.checksums cimport Checksum
from polymq.protocols.rocketmq.extras cimport hash_of
from polymq.protocols.rocketmq.fields cimport is_utf8
from polymq.protocols.rocketmq.generic cimport Generic
from polymq.wire.inline cimport copy, equal_bytes, load_i64, load_u32, load_u32_be, sized_end, store_i64_be, store_u32_be

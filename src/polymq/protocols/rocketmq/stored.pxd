from polymq.protocols.rocketmq.checksums cimport Checksum
from polymq.protocols.rocketmq.extras cimport hash_of
from polymq.protocols.rocketmq.sends cimport Orders, Sends
from polymq.wire.inline cimport copy, equal_bytes, load_i64, load_u32, load_u32_be, store_i64_be, store_u32, store_u32_be

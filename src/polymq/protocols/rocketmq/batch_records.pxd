from polymq.protocols.rocketmq.checksums cimport Checksum
from polymq.protocols.rocketmq.extras cimport Keeper
from polymq.protocols.rocketmq.generic cimport Generic
from polymq.wire.inline cimport copy, load_u32_be, store_u32

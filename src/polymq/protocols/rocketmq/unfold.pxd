from polymq.protocols.rocketmq.checksums cimport Checksum
from polymq.protocols.rocketmq.generic cimport Generic
from polymq.wire.inline cimport copy, equal_bytes, load_u32_be

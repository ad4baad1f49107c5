from polymq.protocols.rocketmq.checksums cimport Checksum
from polymq.protocols.rocketmq.extras cimport Keeper
from polymq.protocols.rocketmq.fields cimport Fields, is_utf8, unescape
from polymq.protocols.rocketmq.repeats cimport Repeats
from polymq.protocols.rocketmq.rows cimport Rows
from polymq.protocols.rocketmq.sends cimport run_of
from polymq.wire.inline cimport bytes_at, copy, equal_bytes, load_u32_be

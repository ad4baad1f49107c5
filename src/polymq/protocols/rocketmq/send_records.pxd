from polymq.protocols.rocketmq.generic cimport Generic
from polymq.protocols.rocketmq.sends cimport Orders, Sends
from polymq.wire.inline cimport copy, store_u32

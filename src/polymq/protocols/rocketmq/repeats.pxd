from polymq.protocols.rocketmq.fields cimport Fields
from polymq.wire.inline cimport bytes_at, copy, equal_bytes, store_u32


cdef class Repeats:
    cdef public dict lanes
    cdef readonly bytes key
    cdef readonly long long number
    cdef readonly long long commit_offset
    cdef unsigned char[::1] _room
    cpdef object find(self, Fields fields, const unsigned char[::1] data, bint binary, bint batch)

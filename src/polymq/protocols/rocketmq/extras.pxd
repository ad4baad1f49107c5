from polymq.protocols.rocketmq.generic cimport Generic
from polymq.wire.inline cimport bytes_at, copy, equal_bytes, store_i64_be, store_u32_be


cdef class Keeper:
    cdef const unsigned char[::1] _host
    cdef Py_ssize_t _host_size
    cdef Py_ssize_t _cluster_size
    cdef unsigned int _port
    cdef const unsigned char[::1] _cluster
    cdef Generic _generic
    cdef readonly long long tags_code
    cdef readonly Py_ssize_t generic_size
    cdef readonly Py_ssize_t properties_at
    cdef readonly Py_ssize_t overhead
    cpdef Py_ssize_t keep_properties(self, unsigned char[::1] extras, Py_ssize_t at, Py_ssize_t end, bint single) except? -2
    cpdef int write_fixed(
        self,
        unsigned char[::1] extras,
        Py_ssize_t at,
        long long flag,
        long long sys_flag,
        long long born_ms,
        long long reconsume_times,
        unsigned int crc,
    ) noexcept


cpdef long long hash_of(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept

from polymq.wire.inline cimport copy, equal_bytes, store_u32


cdef class Generic:
    cdef const unsigned char[::1] _names
    cdef int[::1] _starts
    cpdef bint is_system(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t size) noexcept
    cpdef unsigned int write(
        self,
        unsigned char[::1] target,
        Py_ssize_t at,
        const unsigned char[::1] source,
        Py_ssize_t start,
        Py_ssize_t end,
    ) noexcept

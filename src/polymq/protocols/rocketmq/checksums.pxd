cdef class Checksum:
    cdef unsigned int[::1] tables
    cpdef unsigned int body_crc(self, const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t size) noexcept

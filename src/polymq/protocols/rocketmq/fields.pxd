from polymq.wire.inline cimport bytes_at, equal_bytes, load_u32_be


cdef class Fields:
    cdef readonly int[::1] places
    cdef readonly Py_ssize_t count
    cdef public long long code
    cdef readonly long long opaque
    cdef readonly long long flag
    cdef readonly long long version
    cdef readonly int language
    cdef readonly Py_ssize_t remark_at
    cdef readonly Py_ssize_t remark_size
    cdef readonly int remark_kind
    cdef Py_ssize_t _at
    cdef Py_ssize_t _size
    cdef int _kind
    cdef long long _number
    cpdef bint scan_json(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
    cpdef bint scan_binary(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef int _clear(self) noexcept
    cdef bint _known(self, const unsigned char[::1] data, Py_ssize_t name_at, Py_ssize_t name_size) noexcept
    cdef int _language(self, const unsigned char[::1] data) noexcept
    cdef bint _is_integer(self, const unsigned char[::1] data) noexcept
    cdef Py_ssize_t _fields(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t _value(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t _string(self, const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) noexcept
    cpdef bint is_utf8(self, const unsigned char[::1] data) except? -1


cpdef Py_ssize_t unescape(unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t size) noexcept

cpdef bint is_utf8(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end) except? -1

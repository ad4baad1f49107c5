cdef class Sends:
    cdef readonly object view
    cdef readonly object rows
    cdef readonly object extras
    cdef readonly object topics
    cdef readonly Py_ssize_t first
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t size_bytes
    cdef readonly const unsigned char[::1] data
    cdef readonly int[::1] numbers
    cdef readonly unsigned char[::1] extra_bytes


cpdef Sends run_of(
    object view,
    object rows,
    object extras,
    object topics,
    const unsigned char[::1] data,
    int[::1] numbers,
    unsigned char[::1] extra_bytes,
    Py_ssize_t first,
    Py_ssize_t count,
    Py_ssize_t size_bytes,
)


cdef class Orders:
    cdef readonly object view
    cdef int[::1] _numbers
    cpdef int[::1] numbers_of(self, object order)

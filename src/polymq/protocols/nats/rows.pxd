cdef class Rows:
    cdef readonly int[::1] numbers
    cdef readonly object view
    cdef readonly Py_ssize_t capacity
    cpdef object allocate(self, Py_ssize_t capacity)
    cpdef object grow(self, Py_ssize_t used)

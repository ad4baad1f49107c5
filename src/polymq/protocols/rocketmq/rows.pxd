from polymq.wire.inline cimport copy


cdef class Rows:
    cdef readonly int[::1] numbers
    cdef readonly unsigned char[::1] extras
    cdef readonly object numbers_view
    cdef readonly object extras_view
    cdef readonly Py_ssize_t capacity
    cdef readonly Py_ssize_t room
    cpdef object reserve_rows(self, Py_ssize_t used)
    cpdef object reserve_extras(self, Py_ssize_t used, Py_ssize_t size)
    cpdef object start(self)

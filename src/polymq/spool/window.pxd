cimport cython


@cython.final
cdef class IdWindow:
    cdef readonly Py_ssize_t count_max
    # How many ids the generation that is being filled has, and the one before it.
    cdef readonly Py_ssize_t count
    cdef readonly Py_ssize_t before
    # Two words for each place, both 0 where there is nothing.
    cdef long long[::1] _young
    cdef long long[::1] _old
    cdef Py_ssize_t _young_mask
    cdef Py_ssize_t _old_mask

    cdef bint add_words(self, long long low, long long high) except *
    cdef void _grow(self) except *

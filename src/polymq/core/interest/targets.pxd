cimport cython


@cython.final
cdef class Target:
    cdef readonly object owner
    cdef readonly bint remote
    cdef readonly bint unsure
    cdef readonly int keeps
    cdef readonly bint counted
    cdef readonly bint closed
    cdef readonly Py_ssize_t pair_count
    cdef readonly object pairs
    cdef readonly dict queues
    cdef readonly list spent
    cdef readonly list entries
    # Plain entries by pattern, once somebody has asked for them.
    cdef readonly dict named
    cdef readonly object hears
    cdef readonly object makes
    cdef readonly bint paced
    # Of the package: remote, a keeper, closed, paced or restricted, the same numbers as `pairs`, and how many pairs they have room for.
    cdef bint special
    cdef int[::1] numbers
    cdef Py_ssize_t capacity

    cdef void add_pair(self, Py_ssize_t index, int tag) except *
    cdef void grow(self) except *
    cdef void enlist(self, Entry entry) except *
    cdef void strike(self, Entry entry) except *
    cdef dict entries_of(self, bytes pattern)


@cython.final
cdef class Entry:
    cdef readonly object interest
    cdef readonly Target target
    cdef readonly bytes pattern
    cdef readonly bytes queue
    cdef readonly long long limit
    cdef readonly long long given
    cdef readonly int tag
    cdef readonly int weight
    cdef int place
    cdef int index

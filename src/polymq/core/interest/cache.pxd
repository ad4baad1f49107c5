cimport cython

from polymq.core.interest.groups cimport Group
from polymq.core.interest.names cimport matches
from polymq.core.interest.targets cimport Entry, Target
from polymq.core.interest.trie cimport Node
from polymq.wire.inline cimport equal_bytes, hash_bytes


@cython.final
cdef class Match:
    cdef readonly bytes name
    cdef list nodes
    cdef list groups
    cdef Py_ssize_t group_count
    # How many nodes and groups there are.
    cdef Py_ssize_t part_count
    # What the cache's was when this was known to be right; -1: it is not.
    cdef long long generation
    cdef bint used
    # What the last `has_takers` has passed over.
    cdef Py_ssize_t closed_count

    cpdef bint has_takers(self) except *
    cpdef int certainty(self) except -1
    cpdef bint is_lasting(self) except *
    cdef bint is_dead(self) except *


@cython.final
cdef class MatchCache:
    cdef const unsigned char[::1] view
    cdef list slots
    cdef unsigned int[::1] codes
    cdef unsigned int mask
    cdef list recent
    cdef readonly Py_ssize_t count
    cdef readonly long long hits
    cdef long long effort
    cdef Py_ssize_t broom
    cdef readonly long long generation

    cdef Match find(self, Py_ssize_t at, Py_ssize_t size)
    cdef bint _is_right(self, Match match) except *
    cdef void keep(self, Match match) except *
    cdef Py_ssize_t _place_for(self, unsigned int code) except -2
    cdef Py_ssize_t _victim(self, unsigned int code) except -2
    cdef void _grow(self) except *
    cdef void sweep(self) except *
    cdef void note_change(self, bytes pattern, bint wild) except *

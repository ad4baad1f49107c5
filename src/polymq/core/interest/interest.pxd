cimport cython

from polymq.core.interest.cache cimport Match, MatchCache
from polymq.core.interest.groups cimport Group
from polymq.core.interest.targets cimport Entry, Target
from polymq.core.interest.trie cimport Node, Trie
from polymq.wire.inline cimport bytes_at


@cython.final
cdef class Interest:
    cdef readonly Py_ssize_t count
    cdef Trie trie
    cdef MatchCache cache
    cdef Py_ssize_t entries_max
    cdef long long inserted
    cdef long long removed
    cdef long long misses

    cdef bint _link(self, Node node, Entry entry, bytes queue) except -1
    cdef bint _unlink(self, Node node, Entry entry) except -1
    cdef Match look_up(self, Py_ssize_t at, Py_ssize_t size)

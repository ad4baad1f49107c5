cimport cython

from polymq.core.interest.groups cimport Group
from polymq.core.interest.targets cimport Entry


@cython.final
cdef class Node:
    cdef bytes token
    cdef Node child
    cdef dict children
    cdef Node star
    cdef Node rest
    cdef Entry first
    cdef list others
    cdef Group group
    cdef dict groups
    cdef int local_count

    cdef bint has_entries(self) noexcept
    cdef bint is_needless(self) noexcept
    cdef void link(self, Entry entry) except *
    cdef void unlink(self, Entry entry) except *
    cdef Group find_group(self, bytes queue)
    cdef void add_group(self, Group group) except *
    cdef void drop_group(self, Group group) except *
    cdef list[Group] list_groups(self)
    cdef Node find_child(self, bytes token)
    cdef Node add_child(self, bytes token)
    cdef void drop_child(self, bytes token) except *


@cython.final
cdef class Trie:
    cdef Node root
    cdef readonly Py_ssize_t node_count
    cdef Py_ssize_t visited

    cdef Node reach(self, list[bytes] tokens)
    cdef list[Node] path(self, list[bytes] tokens)
    cdef void prune(self, list[bytes] tokens, list[Node] nodes) except *
    cdef list[Node] matching(self, bytes name)

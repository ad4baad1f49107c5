cimport cython

from polymq.core.interest.targets cimport Entry, Target


@cython.final
cdef class Group:
    cdef readonly bytes queue
    # Those here; those that stand for other servers, and what they weigh together.
    cdef list[Entry] members
    cdef list[Entry] remotes
    cdef long long remote_weight

    cdef void link(self, Entry entry) except *
    cdef void unlink(self, Entry entry) except *
    cdef void weigh(self, Entry entry, int weight) except *
    cdef bint has_members(self) noexcept
    cdef bint lists(self, Entry entry) except *
    cdef bint has_takers(self) except *


@cython.final
cdef class Chooser:
    cdef object random
    cdef unsigned long long state
    cdef bint seeded
    cdef long long able
    cdef long long steps

    cdef Entry choose(self, list[Group] groups, Py_ssize_t first, Py_ssize_t end, bint local, bint remote, Target avoided)
    cdef Entry choose_of(self, list[Entry] entries)
    cdef void take_out(self, list[Group] groups, Py_ssize_t first, Py_ssize_t end, Entry entry) except *
    cdef Entry _member(self, list[Group] groups, Py_ssize_t first, Py_ssize_t end, bint local, bint remote, long long number)
    cdef Py_ssize_t _weight_of(self, list[Group] groups, Py_ssize_t first, Py_ssize_t end, bint local, bint remote) except -1
    cdef Entry _scan(self, list[Group] groups, Py_ssize_t first, Py_ssize_t end, bint local, bint remote, Target avoided, long long number)
    cdef Py_ssize_t _draw(self, long long stop) except -1

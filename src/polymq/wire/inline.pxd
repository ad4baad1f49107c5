# C bodies of the helpers in inline.py: included into every compiled hot module, so a load or a store costs
# one instruction and a copy is one memcpy. Same names, same meaning; tests/unit/wire/test_inline.py compares them.
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy


cdef inline void copy(unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    if size > 0:
        memcpy(&target[at], &source[start], size)


cdef inline unsigned int load_u32(const unsigned char[::1] source, Py_ssize_t at) noexcept nogil:
    return source[at] | (source[at + 1] << 8) | (source[at + 2] << 16) | (<unsigned int> source[at + 3] << 24)


cdef inline Py_ssize_t sized_end(const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t stop) noexcept nogil:
    cdef Py_ssize_t size
    if stop - at < 4:
        return -1
    size = load_u32(source, at)
    return -1 if size > stop - at - 4 else at + 4 + size


cdef inline long long load_i64(const unsigned char[::1] source, Py_ssize_t at) noexcept nogil:
    return <long long> (<unsigned long long> load_u32(source, at) | (<unsigned long long> load_u32(source, at + 4) << 32))


cdef inline void store_u32(unsigned char[::1] target, Py_ssize_t at, unsigned int value) noexcept nogil:
    target[at] = value & 255
    target[at + 1] = (value >> 8) & 255
    target[at + 2] = (value >> 16) & 255
    target[at + 3] = value >> 24


cdef inline void store_i64(unsigned char[::1] target, Py_ssize_t at, long long value) noexcept nogil:
    store_u32(target, at, <unsigned int> (<unsigned long long> value & 0xFFFFFFFFU))
    store_u32(target, at + 4, <unsigned int> (<unsigned long long> value >> 32))


cdef inline unsigned int load_u32_be(const unsigned char[::1] source, Py_ssize_t at) noexcept nogil:
    return (<unsigned int> source[at] << 24) | (source[at + 1] << 16) | (source[at + 2] << 8) | source[at + 3]


cdef inline void store_u32_be(unsigned char[::1] target, Py_ssize_t at, unsigned int value) noexcept nogil:
    target[at] = value >> 24
    target[at + 1] = (value >> 16) & 255
    target[at + 2] = (value >> 8) & 255
    target[at + 3] = value & 255


cdef inline void store_i64_be(unsigned char[::1] target, Py_ssize_t at, long long value) noexcept nogil:
    store_u32_be(target, at, <unsigned int> (<unsigned long long> value >> 32))
    store_u32_be(target, at + 4, <unsigned int> (<unsigned long long> value & 0xFFFFFFFFU))


cdef inline Py_ssize_t find_blank(const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t end) noexcept nogil:
    # Eight bytes at a time: one of them is below 33 if its lane borrows, or one below it has; which of them does not matter.
    cdef unsigned long long lanes
    while end - at >= 8:
        memcpy(&lanes, &source[at], 8)
        if (lanes - 0x2121212121212121U) & ~lanes & 0x8080808080808080U:
            break
        at += 8
    while at < end and source[at] > 32:
        at += 1
    return at


cdef inline unsigned int hash_bytes(const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t size) noexcept nogil:
    cdef unsigned long long factor = 0x9E3779B97F4A7C15ULL
    cdef unsigned long long mixed = <unsigned long long> size * factor
    cdef unsigned long long word = 0
    cdef Py_ssize_t left = size
    while left >= 8:
        mixed = (mixed ^ <unsigned long long> load_i64(source, at)) * factor
        mixed ^= mixed >> 29
        at += 8
        left -= 8
    if size >= 8:
        word = <unsigned long long> load_i64(source, at + left - 8)
    else:
        while left > 0:
            left -= 1
            word = word << 8 | source[at + left]
    mixed = (mixed ^ word) * factor
    mixed = (mixed ^ mixed >> 32) * factor
    return <unsigned int> (mixed >> 32)


cdef inline bint equal_bytes(bytes text, const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t size) noexcept:
    if PyBytes_GET_SIZE(text) != size:
        return False
    return size == 0 or memcmp(PyBytes_AS_STRING(text), &source[at], size) == 0


cdef inline bytes bytes_at(const unsigned char[::1] source, Py_ssize_t at, Py_ssize_t size):
    if size == 0:
        return b""
    return PyBytes_FromStringAndSize(<const char*> &source[at], size)

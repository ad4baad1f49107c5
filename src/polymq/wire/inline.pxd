# C bodies of the helpers in inline.py: included into every compiled hot module, so a load or a store costs
# one instruction and a copy is one memcpy. Same names, same meaning; tests/unit/wire/test_inline.py compares them.
from libc.string cimport memcpy


cdef inline void copy(unsigned char[::1] target, Py_ssize_t at, const unsigned char[::1] source, Py_ssize_t start, Py_ssize_t size) noexcept nogil:
    if size > 0:
        memcpy(&target[at], &source[start], size)


cdef inline unsigned int load_u32(const unsigned char[::1] source, Py_ssize_t at) noexcept nogil:
    return source[at] | (source[at + 1] << 8) | (source[at + 2] << 16) | (<unsigned int> source[at + 3] << 24)


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

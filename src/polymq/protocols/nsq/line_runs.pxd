from polymq.wire.inline cimport load_i64, load_u32_be


cpdef Py_ssize_t read_finishes(
    const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, long long[::1] ids, Py_ssize_t used, Py_ssize_t capacity
) noexcept

cpdef bint repeats(const unsigned char[::1] data, Py_ssize_t at, Py_ssize_t end, const unsigned char[::1] line, Py_ssize_t size) noexcept

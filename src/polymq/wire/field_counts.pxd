from polymq.wire.inline cimport load_u32, sized_end

cpdef int count_fields(const unsigned char[::1] view, Py_ssize_t position, long long[::1] left_out) noexcept

cpdef long long read_id(const unsigned char[::1] data, Py_ssize_t at, unsigned long long salt) noexcept

cpdef void write_id(unsigned char[::1] target, Py_ssize_t at, long long message_id, unsigned long long salt) noexcept

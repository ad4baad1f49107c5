cpdef bint matches(bytes pattern, bytes name) noexcept

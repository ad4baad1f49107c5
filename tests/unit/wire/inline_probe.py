"""Every helper of inline.pxd behind a Python function: test_inline.py compiles this file, nothing else uses it."""

from __future__ import annotations

import cython

if not cython.compiled:
    from polymq.wire.inline import (
        bytes_at,
        copy,
        equal_bytes,
        find_blank,
        hash_bytes,
        load_i64,
        load_u32,
        load_u32_be,
        sized_end,
        store_i64,
        store_i64_be,
        store_u32,
        store_u32_be,
    )


def run_copy(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
):
    copy(target, at, source, start, size)


def run_load_u32(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t):
    return load_u32(source, at)


def run_sized_end(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t):
    return sized_end(source, at, stop)


def run_load_i64(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t):
    return load_i64(source, at)


def run_load_u32_be(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t):
    return load_u32_be(source, at)


def run_store_u32(target: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint):
    store_u32(target, at, value)


def run_store_u32_be(target: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.uint):
    store_u32_be(target, at, value)


def run_store_i64(target: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong):
    store_i64(target, at, value)


def run_store_i64_be(target: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong):
    store_i64_be(target, at, value)


def run_find_blank(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t):
    return find_blank(source, at, end)


def run_hash_bytes(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    return hash_bytes(source, at, size)


def run_equal_bytes(text: bytes, source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    return bool(equal_bytes(text, source, at, size))


def run_bytes_at(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t):
    return bytes_at(source, at, size)

"""What a background thread does to many files, as few calls that hold nobody up; and what the loop asks about one. Hot.

A thread that makes three system calls for each of a thousand files takes the interpreter's lock three thousand times,
each time from the loop; compiled, a call here gives it away once and takes it once. Names are those of the operating
system, each ended by a zero byte, all in one buffer. A code is 0, an errno of what was to be done, or a negative errno
if the file could not even be opened.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    import os

    def _name(names: memoryview, at: int) -> bytes:
        return bytes(names[at:]).partition(b"\0")[0]

    def _opened(name: bytes, flags: int) -> int:
        try:
            return os.open(name, flags | os.O_CLOEXEC, 0o640)
        except OSError as error:
            return -(error.errno or 1)

    def sync_file(names: memoryview, at: int) -> int:
        descriptor = _opened(_name(names, at), os.O_RDWR)
        if descriptor < 0:
            return descriptor
        try:
            os.fdatasync(descriptor)
        except OSError as error:
            return error.errno or 1
        finally:
            os.close(descriptor)
        return 0

    def hasten_file(_names: memoryview, _at: int) -> int:
        return 0

    def prepare_file(names: memoryview, at: int, size: int) -> int:
        descriptor = _opened(_name(names, at), os.O_RDWR | os.O_CREAT)
        if descriptor < 0:
            return descriptor
        zeros = bytes(65536)
        try:
            os.ftruncate(descriptor, 0)
            os.posix_fallocate(descriptor, 0, size)
            position = 0
            while position < size:
                position += os.pwrite(descriptor, zeros[: size - position], position)
        except OSError as error:
            return error.errno or 1
        finally:
            os.close(descriptor)
        return 0

    def range_in_cache(_descriptor: int, _position: int, _size: int) -> int:
        return -1


__all__ = ["hasten_each", "in_cache", "prepare_one", "sync_each"]


def sync_each(names: cython.const[cython.uchar][::1], codes: cython.int[::1]) -> None:
    """Sync every file (fdatasync), one after the other; its code says what became of each."""
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    count: cython.Py_ssize_t = len(codes)
    with cython.nogil:
        for i in range(count):
            codes[i] = sync_file(names, at)
            while names[at]:
                at += 1
            at += 1


def hasten_each(names: cython.const[cython.uchar][::1], count: cython.Py_ssize_t) -> None:
    """Have the disk begin to write the dirty pages of every file, wait for nothing, report nothing (docs/adr/0011).

    Uncompiled it does nothing: Python does not have the call.
    """
    at: cython.Py_ssize_t = 0
    done: cython.Py_ssize_t = 0
    with cython.nogil:
        while done < count:
            hasten_file(names, at)
            done += 1
            while names[at]:
                at += 1
            at += 1


def prepare_one(name: cython.const[cython.uchar][::1], size: cython.longlong) -> int:
    """Make a file of `size` zeros, in real blocks whose pages are in the page cache, whatever it was; gives its code."""
    code: cython.int
    with cython.nogil:
        code = prepare_file(name, 0, size)
    return code


def in_cache(descriptor: cython.int, position: cython.longlong, size: cython.longlong) -> bool:
    """Whether reading a range would find all of it in the page cache; True also if that cannot be told. Brings nothing in.

    Uncompiled it cannot be told: Python does not have the call.
    """
    return range_in_cache(descriptor, position, size) != 0

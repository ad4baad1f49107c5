# System calls without Python in between: what a background thread does for many files takes the interpreter's lock once.
# The twins in bulk.py do the same one call at a time. Results are 0 or an errno, negative if the file could not be opened.
cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <sys/mman.h>
    #include <unistd.h>

    static int polymq_open(const char *path, int flags) {
        int descriptor;
        do descriptor = open(path, flags | O_CLOEXEC, 0640);
        while (descriptor < 0 && errno == EINTR);
        return descriptor;
    }

    static int polymq_sync_file(const char *path) {
        int descriptor = polymq_open(path, O_RDWR), code = 0;
        if (descriptor < 0) return -errno;
        while (fdatasync(descriptor)) {
            code = errno;
            if (code != EINTR) break;
            code = 0;
        }
        close(descriptor);
        return code;
    }

    static int polymq_hasten_file(const char *path) {
        int descriptor = polymq_open(path, O_RDONLY), code = 0;
        if (descriptor < 0) return -errno;
    #ifdef SYNC_FILE_RANGE_WRITE
        if (sync_file_range(descriptor, 0, 0, SYNC_FILE_RANGE_WRITE)) code = errno;
    #endif
        close(descriptor);
        return code;
    }

    static int polymq_write_zeros(int descriptor, long long size) {
        static const char zeros[65536];
        long long at = 0;
        while (at < size) {
            size_t left = size - at < (long long) sizeof zeros ? (size_t) (size - at) : sizeof zeros;
            ssize_t written = pwrite(descriptor, zeros, left, at);
            if (written < 0 && errno != EINTR) return errno;
            if (written > 0) at += written;
        }
        return 0;
    }

    static int polymq_prepare_file(const char *path, long long size) {
        int descriptor = polymq_open(path, O_RDWR | O_CREAT), code = 0;
        if (descriptor < 0) return -errno;
        if (ftruncate(descriptor, 0)) code = errno;
        while (!code && (code = posix_fallocate(descriptor, 0, size)) == EINTR) code = 0;
        if (!code) code = polymq_write_zeros(descriptor, size);
        close(descriptor);
        return code;
    }

    /* Whether the page cache has all of a range, found out without bringing anything in: 1, 0, or -1 if it cannot be told. */
    static int polymq_in_cache(int descriptor, long long position, long long size) {
        enum { PIECE_PAGES = 256 };
        unsigned char pages[PIECE_PAGES];
        const long long page_bytes = sysconf(_SC_PAGESIZE), end = position + size;
        long long at = position - position % page_bytes;
        int found = 1;
        while (found == 1 && at < end) {
            long long length = end - at < PIECE_PAGES * page_bytes ? end - at : PIECE_PAGES * page_bytes;
            void *map = mmap(0, length, PROT_READ, MAP_SHARED, descriptor, at);
            if (map == MAP_FAILED) return -1;
            if (mincore(map, length, (void *) pages)) found = -1;
            else for (long long i = 0; i * page_bytes < length; i++) if (!(pages[i] & 1)) found = 0;
            munmap(map, length);
            at += length;
        }
        return found;
    }
    """
    int polymq_in_cache(int descriptor, long long position, long long size) nogil
    int polymq_sync_file(const char *path) nogil
    int polymq_hasten_file(const char *path) nogil
    int polymq_prepare_file(const char *path, long long size) nogil


cdef inline int sync_file(const unsigned char[::1] names, Py_ssize_t at) noexcept nogil:
    return polymq_sync_file(<const char *> &names[at])


cdef inline int hasten_file(const unsigned char[::1] names, Py_ssize_t at) noexcept nogil:
    return polymq_hasten_file(<const char *> &names[at])


cdef inline int prepare_file(const unsigned char[::1] names, Py_ssize_t at, long long size) noexcept nogil:
    return polymq_prepare_file(<const char *> &names[at], size)


cdef inline int range_in_cache(int descriptor, long long position, long long size) noexcept nogil:
    return polymq_in_cache(descriptor, position, size)

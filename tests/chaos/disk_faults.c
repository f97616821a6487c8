/* Loaded into a broker with LD_PRELOAD: writes and flushes below CHAOS_DISK_PREFIX fail with the errno that the file
   CHAOS_DISK_CONTROL holds as a native int; 0 = the disk is well. A failing disk writes half of what it was given first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static volatile int *control;
static const char *prefix;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_DISK_CONTROL");
    prefix = getenv("CHAOS_DISK_PREFIX");
    int fd = path && prefix ? open(path, O_RDONLY) : -1;
    if (fd >= 0) {
        void *page = mmap(NULL, sizeof(int), PROT_READ, MAP_SHARED, fd, 0);
        close(fd);
        if (page != MAP_FAILED) control = page;
    }
}

static int failure(int fd) {
    int code = control ? *control : 0;
    char link[64], path[PATH_MAX];
    if (code == 0) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size <= 0) return 0;
    path[size] = 0;
    return strncmp(path, prefix, strlen(prefix)) == 0 ? code : 0;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL(fd) do { int code = failure(fd); if (code) { errno = code; return -1; } } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    FAIL(fd);
    return real(fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
    REAL(pwrite64);
    int code = failure(fd);
    if (code && size > 1 && real(fd, data, size / 2, offset) >= 0) { errno = code; return -1; }
    if (code) { errno = code; return -1; }
    return real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    REAL(pwritev64);
    FAIL(fd);
    return real(fd, parts, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    REAL(pwritev64v2);
    FAIL(fd);
    return real(fd, parts, count, offset, flags);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL(fd);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    FAIL(fd);
    return real(fd);
}

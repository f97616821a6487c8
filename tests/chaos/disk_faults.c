/* Loaded into a broker with LD_PRELOAD, for the files below CHAOS_DISK_PREFIX. The file CHAOS_DISK_CONTROL is a `struct control`.
   With an errno, writes and flushes fail; a failing disk writes half of what it was given first.
   With a delay, every call that may wait for a disk takes that long: syncs, changes of directories and of lengths (they wait for the
   file system's journal), the first opening of a file, and the first reading of a page (with RWF_NOWAIT: EAGAIN). What was read, written or
   opened since the delay began, or is open, is in memory; what is older is not. Writes end in the page cache. The library counts the delayed calls, and
   names those of the main thread, which runs the event loop: there nobody may wait for a disk. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control {
    int32_t code, delay_ms;
    int32_t delayed;          /* calls of other threads */
    int32_t delayed_on_loop;  /* calls of the main thread */
    char named[4080];         /* those of the main thread, a line each */
};

static volatile struct control *control;
static const char *prefix;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("CHAOS_DISK_CONTROL");
    prefix = getenv("CHAOS_DISK_PREFIX");
    int fd = path && prefix ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        void *page = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        if (page != MAP_FAILED) control = page;
    }
}

static int is_below(const char *path) { return path && strncmp(path, prefix, strlen(prefix)) == 0; }

/* The path of a descriptor if it is below the prefix, else NULL. */
static const char *below(int fd, char path[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size <= 0) return NULL;
    path[size] = 0;
    return is_below(path) ? path : NULL;
}

static int failure(int fd) {
    char path[PATH_MAX];
    int code = control ? control->code : 0;
    return code && below(fd, path) ? code : 0;
}

static void wait_for_disk(const char *call, const char *path) {
    int delay_ms = control ? control->delay_ms : 0;
    if (!delay_ms || !is_below(path)) return;
    if (syscall(SYS_gettid) == getpid()) {
        size_t used = strnlen((const char *)control->named, sizeof control->named);
        snprintf((char *)control->named + used, sizeof control->named - used, "%s %s\n", call, path + strlen(prefix));
        __atomic_add_fetch(&control->delayed_on_loop, 1, __ATOMIC_RELAXED);
    } else {
        __atomic_add_fetch(&control->delayed, 1, __ATOMIC_RELAXED);
    }
    struct timespec left = {delay_ms / 1000, delay_ms % 1000 * 1000000L};
    while (nanosleep(&left, &left)) {}
}

/* What is in memory: opened paths, and pages that were read or written since the delay began. */
static uint8_t known[1 << 22];

static uint64_t mixed(uint64_t value) {
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

static uint64_t hashed(const char *path) {
    uint64_t hash = 14695981039346656037u;
    while (*path) hash = (hash ^ (uint8_t)*path++) * 1099511628211u;
    return mixed(hash);
}

static int is_known(uint64_t key) { return known[key >> 3 & (sizeof known - 1)] >> (key & 7) & 1; }

static void know(uint64_t key) { __atomic_fetch_or(&known[key >> 3 & (sizeof known - 1)], 1 << (key & 7), __ATOMIC_RELAXED); }

/* Whether all these bytes of a file are in memory; with `now`, they are from now on. */
static int in_memory(int fd, off64_t offset, off64_t size, int now) {
    struct stat64 found;
    int all = 1;
    if (fstat64(fd, &found) != 0) return 1;
    off64_t end = offset + size < found.st_size || now > 1 ? offset + size : found.st_size;
    for (off64_t page = offset >> 12; page << 12 < end; page++) {
        uint64_t key = mixed(mixed(found.st_ino) ^ (uint64_t)page);
        all = all && is_known(key);
        if (now) know(key);
    }
    return all;
}

static off64_t length(const struct iovec *parts, int count) {
    off64_t size = 0;
    for (int i = 0; i < count; i++) size += parts[i].iov_len;
    return size;
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FAIL(fd) do { int code = failure(fd); if (code) { errno = code; return -1; } } while (0)
#define WRITTEN(fd, offset, size) do { if (control && control->delay_ms) in_memory(fd, offset, size, 2); } while (0)
#define WAIT(call, fd) do { if (control && control->delay_ms) { char path[PATH_MAX]; wait_for_disk(call, below(fd, path)); } } while (0)

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
    WRITTEN(fd, offset, size);
    return real(fd, data, size, offset);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return pwrite64(fd, data, size, offset); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    REAL(pwritev64);
    FAIL(fd);
    WRITTEN(fd, offset, length(parts, count));
    return real(fd, parts, count, offset);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    REAL(pwritev64v2);
    FAIL(fd);
    WRITTEN(fd, offset, length(parts, count));
    return real(fd, parts, count, offset, flags);
}

int fsync(int fd) {
    REAL(fsync);
    FAIL(fd);
    WAIT("fsync", fd);
    return real(fd);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    FAIL(fd);
    WAIT("fdatasync", fd);
    return real(fd);
}

int ftruncate64(int fd, off64_t size) {
    REAL(ftruncate64);
    WAIT("ftruncate", fd);
    return real(fd, size);
}

/* Before a read. Returns EAGAIN if it must not wait, and the bytes are not in memory. */
static int before_read(int fd, off64_t offset, off64_t size, int flags) {
    char path[PATH_MAX];
    if (!control || !control->delay_ms || !below(fd, path) || in_memory(fd, offset, size, 0)) return 0;
    if (flags & RWF_NOWAIT) return EAGAIN;
    wait_for_disk("read", path);
    in_memory(fd, offset, size, 1);
    return 0;
}

ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
    REAL(pread64);
    before_read(fd, offset, size, 0);
    return real(fd, data, size, offset);
}

ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) {
    REAL(preadv64);
    before_read(fd, offset, length(parts, count), 0);
    return real(fd, parts, count, offset);
}

ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    REAL(preadv64v2);
    int code = before_read(fd, offset, length(parts, count), flags);
    if (code) { errno = code; return -1; }
    return real(fd, parts, count, offset, flags);
}

/* Whether this process has the file open: then its inode is in memory. */
static int is_open(const char *path) {
    char link[64], target[PATH_MAX];
    for (int fd = 0; fd < 4096; fd++) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t size = readlink(link, target, sizeof target - 1);
        if (size > 0 && (size_t)size == strlen(path) && memcmp(target, path, size) == 0) return 1;
    }
    return 0;
}

/* A file is created, or its inode is read. */
static void before_open(const char *path, int flags) {
    if (!control || !control->delay_ms || !is_below(path)) return;
    int is_new = flags & O_CREAT && access(path, F_OK) != 0;
    if (is_new || !(is_known(hashed(path)) || is_open(path))) wait_for_disk(is_new ? "create" : "open", path);
    know(hashed(path));
}

int open64(const char *path, int flags, ...) {
    REAL(open64);
    __builtin_va_list more;
    __builtin_va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? __builtin_va_arg(more, mode_t) : 0;
    __builtin_va_end(more);
    before_open(path, flags);
    return real(path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    REAL(openat64);
    __builtin_va_list more;
    __builtin_va_start(more, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? __builtin_va_arg(more, mode_t) : 0;
    __builtin_va_end(more);
    before_open(path, flags);
    return real(directory, path, flags, mode);
}

int rename(const char *source, const char *target) {
    REAL(rename);
    wait_for_disk("rename", source);
    if (is_below(target)) know(hashed(target));
    return real(source, target);
}

int unlink(const char *path) {
    REAL(unlink);
    wait_for_disk("unlink", path);
    return real(path);
}

int mkdir(const char *path, mode_t mode) {
    REAL(mkdir);
    wait_for_disk("mkdir", path);
    return real(path, mode);
}

int rmdir(const char *path) {
    REAL(rmdir);
    wait_for_disk("rmdir", path);
    return real(path);
}

int stat64(const char *path, struct stat64 *found) {
    REAL(stat64);
    int code = real(path, found);
    if (code == 0) before_open(path, 0);
    return code;
}

DIR *opendir(const char *path) {
    REAL(opendir);
    before_open(path, 0);
    return real(path);
}

int posix_fallocate64(int fd, off64_t offset, off64_t size) {
    REAL(posix_fallocate64);
    WAIT("posix_fallocate", fd);
    return real(fd, offset, size);
}

/* The floor under a broker: takes frames, computes a CRC-32C over each, writes each to a segment file that rolls every 64 MiB, and answers.
 * It looks at nothing else. What it costs is what the kernel and the memory ask of anyone who does this.
 * usage: raw_sink DIRECTORY          prints: PORT
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <nmmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD = 48, ANSWER = 64, SEGMENT = 64 << 20, ROOM = 2 << 20 };

typedef struct {
    int fd;
    size_t start, end;
    unsigned char *bytes;
} Connection;

static int segment = -1, number;
static size_t position;
static volatile uint64_t checked;

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void roll(const char *directory) {
    char name[4096];
    if (segment >= 0) close(segment);
    if (number >= 2) {
        snprintf(name, sizeof name, "%s/%d.log", directory, number - 2);
        unlink(name);
    }
    snprintf(name, sizeof name, "%s/%d.log", directory, number++);
    segment = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
    if (segment < 0) fail(name);
    position = 0;
}

/* Three interleaved lanes, as fast implementations do it; that their sum is not the CRC of the whole does not change what it costs. */
static uint64_t crc(const unsigned char *bytes, size_t size) {
    uint64_t a = 0, b = 0, c = 0, word;
    size_t words = size / 24;
    for (size_t i = 0; i < words; i++) {
        memcpy(&word, bytes + 8 * i, 8);
        a = _mm_crc32_u64(a, word);
        memcpy(&word, bytes + 8 * (i + words), 8);
        b = _mm_crc32_u64(b, word);
        memcpy(&word, bytes + 8 * (i + 2 * words), 8);
        c = _mm_crc32_u64(c, word);
    }
    return a ^ b ^ c;
}

static void take(Connection *c, const char *directory) {
    static const unsigned char answer[ANSWER] = {0, 0, 0, ANSWER - 4};
    while (c->end - c->start >= 4) {
        unsigned char *at = c->bytes + c->start;
        size_t size = (size_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
        if (size < HEAD || size + 4 > ROOM) exit(1);
        if (c->end - c->start < size + 4) break;
        checked += crc(at + HEAD, size - HEAD);
        if (position + size > SEGMENT) roll(directory);
        if (pwrite(segment, at + HEAD, size - HEAD, position) != (ssize_t)(size - HEAD)) fail("pwrite");
        position += size - HEAD;
        if (send(c->fd, answer, ANSWER, MSG_NOSIGNAL) < 0) return; /* gone; the next recv says so */
        c->start += size + 4;
    }
    if (c->start == c->end) {
        c->start = c->end = 0;
    } else if (c->start > 0 && ROOM - c->end < ROOM / 4) {
        memmove(c->bytes, c->bytes + c->start, c->end - c->start);
        c->end -= c->start;
        c->start = 0;
    }
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    if (bind(listener, (void *)&address, sizeof address) || listen(listener, 64)) fail("listen");
    getsockname(listener, (void *)&address, &length);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    roll(argv[1]);
    int poll = epoll_create1(0);
    struct epoll_event wanted = {.events = EPOLLIN, .data.ptr = NULL}, events[64];
    epoll_ctl(poll, EPOLL_CTL_ADD, listener, &wanted);
    for (;;) {
        int ready = epoll_wait(poll, events, 64, -1);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (!c) {
                c = calloc(1, sizeof *c);
                c->fd = accept(listener, NULL, NULL);
                c->bytes = malloc(ROOM);
                setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                wanted.data.ptr = c;
                epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &wanted);
                continue;
            }
            ssize_t got = recv(c->fd, c->bytes + c->end, ROOM - c->end, MSG_DONTWAIT);
            if (got <= 0) {
                close(c->fd);
                free(c->bytes);
                free(c);
                continue;
            }
            c->end += got;
            take(c, argv[1]);
        }
    }
}

/* Sends one prepared frame over and over on several connections, several in flight on each, and counts whole answers.
 * usage: raw_load HOST PORT FRAME_FILE CONNECTIONS DEPTH SECONDS      prints: answers bytes seconds
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    int fd, in_flight, writable;
    size_t sent;              /* of the frame that is being sent */
    unsigned char head[4];
    int head_count;
    int64_t body_left;        /* of the answer that is being received */
} Connection;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc != 7) return 2;
    int count = atoi(argv[4]), depth = atoi(argv[5]);
    double seconds = atof(argv[6]);
    FILE *file = fopen(argv[3], "rb");
    if (!file) fail(argv[3]);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    unsigned char *frame = malloc(size);
    if (fread(frame, 1, size, file) != size) fail("read");
    fclose(file);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    Connection *connections = calloc(count, sizeof *connections);
    int poll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        Connection *c = &connections[i];
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(c->fd, (void *)&address, sizeof address)) fail("connect");
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        setsockopt(c->fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
        fcntl(c->fd, F_SETFL, O_NONBLOCK);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
    }
    size_t room = 1 << 20;
    unsigned char *buffer = malloc(room);
    int64_t answers = 0, bytes = 0;
    double start = now(), end = start + seconds;
    struct epoll_event events[64];
    while (now() < end) {
        int ready = epoll_wait(poll, events, 64, 100);
        for (int i = 0; i < ready; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) c->writable = 1;
            for (;;) {
                ssize_t got = recv(c->fd, buffer, room, 0);
                if (got == 0) { fprintf(stderr, "closed by the broker\n"); return 1; }
                if (got < 0) { if (errno == EAGAIN) break; fail("recv"); }
                bytes += got;
                for (ssize_t at = 0; at < got;) {
                    if (c->body_left == 0) {
                        c->head[c->head_count++] = buffer[at++];
                        if (c->head_count < 4) continue;
                        c->body_left = (int64_t)c->head[0] << 24 | c->head[1] << 16 | c->head[2] << 8 | c->head[3];
                        c->head_count = 0;
                        continue;
                    }
                    int64_t take = got - at < c->body_left ? got - at : c->body_left;
                    at += take;
                    c->body_left -= take;
                    if (c->body_left == 0) { answers++; c->in_flight--; }
                }
            }
            while (c->writable && (c->in_flight < depth || c->sent)) {
                ssize_t put = send(c->fd, frame + c->sent, size - c->sent, MSG_NOSIGNAL);
                if (put < 0) { if (errno == EAGAIN) { c->writable = 0; break; } fail("send"); }
                if (c->sent == 0) c->in_flight++;
                c->sent = (c->sent + put) % size;
            }
        }
    }
    printf("%lld %lld %.6f\n", (long long)answers, (long long)bytes, now() - start);
    return 0;
}

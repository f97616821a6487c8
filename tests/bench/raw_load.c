/* Sends one prepared frame over and over on several connections, several in flight on each, and counts whole answers.
 * usage: raw_load HOST PORT FRAME_FILE CONNECTIONS DEPTH SECONDS [REQUESTS [STEP ...]]
 * prints: answers bytes seconds median-latency-us 99th-percentile-latency-us
 *
 * It ends after SECONDS or, if REQUESTS is not 0, when so many are answered. Each STEP is done after each frame, in order:
 *   AT+BY         the four bytes at AT, a big-endian number, grow by BY (a sequence number, the epoch of a fetch session)
 *   crc:AT:FROM:TO  the four bytes at AT become the CRC-32C of those from FROM to before TO
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
    double *began;            /* of the requests in flight, a ring of DEPTH */
    int first;
} Connection;

typedef struct {
    size_t at, from, to;      /* `to` is 0: a number */
    uint32_t by;
} Step;

enum { LATENCIES = 200000 };  /* in units of 5 us: up to a second */
static int64_t latencies[LATENCIES];
static uint32_t crc_table[256];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double latency_us(double share, int64_t answers) {
    int64_t seen = 0;
    for (int i = 0; i < LATENCIES; i++) {
        seen += latencies[i];
        if (seen >= share * answers) return i * 5;
    }
    return 0;
}

static uint32_t read_number(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3];
}

static void write_number(unsigned char *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = value >> (24 - 8 * i);
}

static Step parse_step(const char *text, size_t size) {
    Step step = {0};
    if (sscanf(text, "crc:%zu:%zu:%zu", &step.at, &step.from, &step.to) != 3 && sscanf(text, "%zu+%u", &step.at, &step.by) != 2) exit(2);
    if (step.at + 4 > size || step.from > step.to || step.to > size) exit(2);
    return step;
}

static void take_step(const Step *step, unsigned char *frame) {
    if (!step->to) {
        write_number(frame + step->at, read_number(frame + step->at) + step->by);
        return;
    }
    uint32_t crc = ~0u;
    for (size_t i = step->from; i < step->to; i++) crc = crc_table[(crc ^ frame[i]) & 255] ^ crc >> 8;
    write_number(frame + step->at, ~crc);
}

int main(int argc, char **argv) {
    if (argc < 7 || argc > 15) return 2;
    int count = atoi(argv[4]), depth = atoi(argv[5]);
    double seconds = atof(argv[6]);
    int64_t requests = argc > 7 ? atoll(argv[7]) : 0, begun = 0;
    for (uint32_t i = 0; i < 256; i++) {
        crc_table[i] = i;
        for (int bit = 0; bit < 8; bit++) crc_table[i] = crc_table[i] >> 1 ^ (crc_table[i] & 1 ? 0x82f63b78 : 0);
    }
    FILE *file = fopen(argv[3], "rb");
    if (!file) fail(argv[3]);
    fseek(file, 0, SEEK_END);
    size_t size = ftell(file);
    rewind(file);
    unsigned char *frame = malloc(size);
    if (fread(frame, 1, size, file) != size) fail("read");
    fclose(file);
    Step steps[8];
    int step_count = 0;
    for (int i = 8; i < argc; i++) steps[step_count++] = parse_step(argv[i], size);

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    inet_pton(AF_INET, argv[1], &address.sin_addr);
    Connection *connections = calloc(count, sizeof *connections);
    int poll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        Connection *c = &connections[i];
        c->began = calloc(depth, sizeof *c->began);
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
    while (now() < end && !(requests && answers >= requests)) {
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
                    if (c->body_left == 0) {
                        int64_t waited = (now() - c->began[c->first]) * 200000;
                        latencies[waited < LATENCIES ? waited : LATENCIES - 1]++;
                        c->first = (c->first + 1) % depth;
                        answers++;
                        c->in_flight--;
                    }
                }
            }
            while (c->writable && (c->sent || (c->in_flight < depth && !(requests && begun >= requests)))) {
                ssize_t put = send(c->fd, frame + c->sent, size - c->sent, MSG_NOSIGNAL);
                if (put < 0) { if (errno == EAGAIN) { c->writable = 0; break; } fail("send"); }
                if (c->sent == 0) {
                    c->began[(c->first + c->in_flight) % depth] = now();
                    c->in_flight++;
                    begun++;
                }
                c->sent = (c->sent + put) % size;
                for (int j = 0; c->sent == 0 && j < step_count; j++) take_step(&steps[j], frame);
            }
        }
    }
    printf("%lld %lld %.6f %.0f %.0f\n", (long long)answers, (long long)bytes, now() - start, latency_us(0.5, answers),
           latency_us(0.99, answers));
    return 0;
}

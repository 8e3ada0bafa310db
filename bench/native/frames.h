/* What the generator and the floor server share: clocks, sockets, little parsers. */
#ifndef IMAGO_BENCH_FRAMES_H
#define IMAGO_BENCH_FRAMES_H
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void die(const char *what) {
    perror(what);
    exit(2);
}

static inline uint32_t be32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static inline void put_be32(unsigned char *p, uint32_t v) {
    p[0] = v >> 24, p[1] = v >> 16, p[2] = v >> 8, p[3] = v;
}

static inline void no_delay(int fd) {
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* crc32 (IEEE) masked to 31 bits, as both protocols want it; bodies are checked once, so a plain table will do. */
static inline uint32_t crc31(const unsigned char *data, size_t size) {
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320u & -(crc & 1));
    }
    return ~crc & 0x7fffffff;
}

/* The number after `key` (such as "\"opaque\":") in [p, p + size), or `missing`. */
static inline int64_t number_after(const char *p, size_t size, const char *key, int64_t missing) {
    const char *at = memmem(p, size, key, strlen(key));
    return at ? strtoll(at + strlen(key), NULL, 10) : missing;
}
#endif

/* A server that answers both protocols and checks nothing: what this machine allows at this moment.
 * usage: floor metaq|rocketmq PORT [FILE]      (prints "ready" once it listens)
 * With FILE it also appends the bytes of every request there, one write a read, as the least a log costs. */
#include "frames.h"

enum { IN_MAX = 4 << 20, OUT_MAX = 8 << 20 };
struct conn { int fd; size_t have; unsigned char in[IN_MAX]; };
static char out[OUT_MAX];
static int store = -1;

/* Answer one MetaQ command at p; return the bytes it took, 0 when it is not whole yet. */
static size_t metaq(const unsigned char *p, size_t have, char *answer, size_t *answered) {
    const unsigned char *end = memmem(p, have, "\r\n", 2);
    if (!end) return 0;
    size_t line = end - p + 2, body = 0;
    char copy[512], *words[10];
    int n = 0;
    memcpy(copy, p, line < sizeof copy ? line - 2 : sizeof copy - 1);
    copy[line - 2] = 0;
    for (char *w = strtok(copy, " "); w && n < 10; w = strtok(NULL, " ")) words[n++] = w;
    if (!strcmp(words[0], "put")) body = atol(words[3]);
    if (have < line + body) return 0;
    *answered = sprintf(answer, "result 200 5 %s\r\n1 0 0", words[n - 1]);
    return line + body;
}

static size_t rocketmq(const unsigned char *p, size_t have, char *answer, size_t *answered) {
    if (have < 8) return 0;
    size_t size = be32(p), header = be32(p + 4) & 0xffffff;
    if (have < size + 4) return 0;
    long opaque = number_after((const char *)p + 8, header, "\"opaque\":", 0);
    int n = sprintf(answer + 8,
        "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"msgId\":\"7F00000100002A9F0000000000000000\",\"queueOffset\":\"0\"},"
        "\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", opaque);
    put_be32((unsigned char *)answer, n + 4);
    put_be32((unsigned char *)answer + 4, n);
    *answered = n + 8;
    return size + 4;
}

static void serve(struct conn *c, int rocket) {
    ssize_t got = read(c->fd, c->in + c->have, IN_MAX - c->have);
    if (got <= 0) {
        if (got < 0 && errno == EAGAIN) return;
        close(c->fd), free(c);
        return;
    }
    c->have += got;
    size_t at = 0, answers = 0, took, answered;
    while ((took = (rocket ? rocketmq : metaq)(c->in + at, c->have - at, out + answers, &answered))) {
        at += took, answers += answered;
        if (answers > OUT_MAX - 4096) break;
    }
    if (store >= 0 && at && write(store, c->in, at) < 0) perror("store");
    memmove(c->in, c->in + at, c->have - at);
    c->have -= at;
    if (answers && write(c->fd, out, answers) < 0) perror("write");
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: floor metaq|rocketmq PORT [FILE]\n"), 2;
    if (argc > 3 && (store = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0) die(argv[3]);
    int rocket = !strcmp(argv[1], "rocketmq"), one = 1, poll = epoll_create1(0);
    int server = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server, (void *)&address, sizeof address) || listen(server, 4096)) die("listen");
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL}, ready[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, server, &e);
    puts("ready"), fflush(stdout);
    for (;;) {
        int n = epoll_wait(poll, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            if (ready[i].data.ptr) { serve(ready[i].data.ptr, rocket); continue; }
            int fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            struct conn *c = malloc(sizeof *c);
            c->fd = fd, c->have = 0, no_delay(fd);
            e.data.ptr = c;
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e);
        }
    }
}

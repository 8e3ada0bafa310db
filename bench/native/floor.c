/* A server that answers both protocols and checks nothing: what this machine allows at this moment.
 * usage: floor metaq|rocketmq PORT [FILE]      (prints "ready" once it listens)
 *        floor pulls PORT FILE QUEUES MESSAGES
 * With FILE it also appends the bytes of every request there, one write a read, as the least a log costs.
 * `pulls` is name service and broker of one topic to RocketMQ's push consumers: QUEUES queues of MESSAGES messages
 * each, always the records of FILE (what a broker answered to a pull) with their offsets put right. */
#include "frames.h"
#include <poll.h>

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

static struct { unsigned char *bytes; long size, count, queues, messages; int port; } held;
static char client_id[256];

static void hold(char **words) {
    int fd = open(words[3], O_RDONLY);
    held.size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    held.bytes = malloc(held.size + 1);
    if (held.size <= 0 || pread(fd, held.bytes, held.size, 0) != held.size) die(words[3]);
    for (long at = 0; at < held.size; at += be32(held.bytes + at)) held.count++;
    held.port = atoi(words[2]), held.queues = atol(words[4]), held.messages = atol(words[5]);
}

/* Write the records of a queue from an offset on, as many as are asked for, over and over those that are held. */
static long records(unsigned char *to, long queue, long offset, long count) {
    long size = 0, at = 0;
    for (long i = 0; i < count; i++, at = at < held.size ? at : 0) {
        long one = be32(held.bytes + at);
        memcpy(to + size, held.bytes + at, one);
        put_be32(to + size + 12, queue);
        put_be32(to + size + 20, (offset + i) >> 32), put_be32(to + size + 24, offset + i);
        put_be32(to + size + 28, 0), put_be32(to + size + 32, offset + i);
        size += one, at += one;
    }
    return size;
}

static int route(char *body) {
    return sprintf(body,
        "{\"brokerDatas\":[{\"brokerAddrs\":{\"0\":\"127.0.0.1:%d\"},\"brokerName\":\"canned\",\"cluster\":\"canned\"}],\"filterServerTable\":{},"
        "\"queueDatas\":[{\"brokerName\":\"canned\",\"perm\":6,\"readQueueNums\":%ld,\"topicSysFlag\":0,\"writeQueueNums\":%ld}]}",
        held.port, held.queues, held.queues);
}

/* Answer one request of a push consumer. Heartbeats say who it is; the end of a queue is not answered. */
static size_t pulls(const unsigned char *p, size_t have, char *answer, size_t *answered) {
    if (have < 8) return 0;
    size_t size = be32(p), header = be32(p + 4) & 0xffffff;
    if (have < size + 4) return 0;
    const char *text = (const char *)p + 8;
    long code = number_after(text, header, "\"code\":", 0), flag = number_after(text, header, "\"flag\":", 0);
    long body = 0, status = 0, offset = number_after(text, header, "\"queueOffset\":\"", 0);
    long wanted = number_after(text, header, "\"maxMsgNums\":\"", 0);
    char fields[200] = "", *data = answer + 600;
    *answered = 0;
    if (code == 105 && memmem(text, header, "%RETRY%", 7)) status = 17;
    else if (code == 105) body = route(data);
    else if (code == 34) {
        const char *id = memmem(text, size - 4, "\"clientID\":\"", 12);
        if (id) sscanf(id + 12, "%255[^\"]", client_id);
    } else if (code == 38) body = sprintf(data, "{\"consumerIdList\":[\"%s\"]}", client_id);
    else if (code == 14) status = 22;
    else if (code == 11) {
        long left = held.messages - offset;
        if (left <= 0) return size + 4;
        if (wanted > left) wanted = left;
        body = records((unsigned char *)data, number_after(text, header, "\"queueId\":\"", 0), offset, wanted);
        sprintf(fields, "\"extFields\":{\"maxOffset\":\"%ld\",\"minOffset\":\"0\",\"nextBeginOffset\":\"%ld\",\"suggestWhichBrokerId\":\"0\"},",
                held.messages, offset + wanted);
    }
    if (flag & 2) return size + 4; /* one way */
    int n = sprintf(answer + 8,
        "{\"code\":%ld,%s\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
        status, fields, (long)number_after(text, header, "\"opaque\":", 0));
    put_be32((unsigned char *)answer, n + 4 + body);
    put_be32((unsigned char *)answer + 4, n);
    memmove(answer + 8 + n, data, body);
    *answered = n + 8 + body;
    return size + 4;
}

static void write_all(int fd, const char *from, size_t size) {
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    while (size) {
        ssize_t n = write(fd, from, size);
        if (n > 0) from += n, size -= n;
        else if (errno != EAGAIN || poll(&room, 1, -1) < 0) { perror("write"); return; }
    }
}

typedef size_t protocol(const unsigned char *, size_t, char *, size_t *);

static void serve(struct conn *c, protocol *one) {
    ssize_t got = read(c->fd, c->in + c->have, IN_MAX - c->have);
    if (got <= 0) {
        if (got < 0 && errno == EAGAIN) return;
        close(c->fd), free(c);
        return;
    }
    c->have += got;
    size_t at = 0, answers = 0, took, answered;
    while ((took = one(c->in + at, c->have - at, out + answers, &answered))) {
        at += took, answers += answered;
        if (answers > OUT_MAX / 2) break;
    }
    if (store >= 0 && at && write(store, c->in, at) < 0) perror("store");
    memmove(c->in, c->in + at, c->have - at);
    c->have -= at;
    if (answers) write_all(c->fd, out, answers);
}

int main(int argc, char **argv) {
    if (argc < 3) return fprintf(stderr, "usage: floor metaq|rocketmq PORT [FILE]\n"), 2;
    int pulled = !strcmp(argv[1], "pulls");
    if (pulled && argc < 6) return fprintf(stderr, "usage: floor pulls PORT FILE QUEUES MESSAGES\n"), 2;
    if (pulled) hold(argv);
    else if (argc > 3 && (store = open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0644)) < 0) die(argv[3]);
    protocol *answering = pulled ? pulls : strcmp(argv[1], "rocketmq") ? metaq : rocketmq;
    int one = 1, poll = epoll_create1(0);
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
            if (ready[i].data.ptr) { serve(ready[i].data.ptr, answering); continue; }
            int fd = accept4(server, NULL, NULL, SOCK_NONBLOCK);
            if (fd < 0) continue;
            struct conn *c = malloc(sizeof *c);
            c->fd = fd, c->have = 0, no_delay(fd);
            e.data.ptr = c;
            epoll_ctl(poll, EPOLL_CTL_ADD, fd, &e);
        }
    }
}

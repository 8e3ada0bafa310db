/* The load generator: one thread, epoll, both protocols, closed or open loop; prints one JSON line.
 *
 * usage: load put|send|transaction|timer|delay|batch|get|pull|filter|route|storm port=N [key=value …]
 *   put    MetaQ put              send   RocketMQ SEND_MESSAGE_V2      batch  SEND_BATCH_MESSAGE
 *   transaction  a half message, then END_TRANSACTION that commits it: one message, counted at the second answer
 *   timer  SEND_MESSAGE_V2 with TIMER_DELAY_SEC 1     delay  the same with DELAY 1 (the first level, one second)
 *   filter PULL_MESSAGE with the SQL92 filter `part < 5`; batches with numbered=1 carry part = 0 … 9
 *   route  GET_ROUTEINFO_BY_TOPIC, one topic after another (port: the name service's)
 *   storm  open `conns` connections at once and have each one answered (MetaQ version), once
 *   get    MetaQ get, catching up and starting again at the end        pull   RocketMQ PULL_MESSAGE, likewise
 * keys: conns=64 depth=1 size=1024 seconds=5 warmup=1 rate=0 (open loop, messages/s) topic=bench topics=1 queues=4
 *       naps=0 (rate: 1: sleep until the next is due, so that others can have the processor, too)
 *       follow=0 (pull: 1: wait for more at the end, as a consumer does)
 *       along=0 (send: so many connections, a queue each, pull what is sent: not counted, in the same loop, so that they
 *       and the generator do not wait for each other's share of a processor)
 *       batch=16 numbered=0 (batch: 1: with a property `part`) fetch=1048576 (get) messages=32 (pull) imago=0 (1: ask for the big pulls) idle=0 (connections that do nothing) pid=N[,N…] (server: CPU time)
 * Latency is taken from the intended send time. */
#include "frames.h"
#include "transport.h"
#include <sys/resource.h>

enum { IN_MAX = 9 << 20, OUT_MAX = 4 << 20, BUCKETS = 64 * 40, WINDOWS_MAX = 1 << 16 };
enum work { PUT, SEND, TRANSACTION, TIMER, DELAY, BATCH, GET, PULL, FILTER, ROUTE, STORM };
enum { SECOND = 0x40000000 }; /* in the opaque: the END_TRANSACTION of a half message */

struct conn {
    enum work work;
    int fd, queue, in_flight;
    void *tls;
    unsigned seq;
    size_t have, out_have, out_sent;
    long offset;
    int64_t *started;
    unsigned char *in, *out;
};

static struct {
    enum work work;
    int port, conns, depth, size, seconds, warmup, topics, queues, batch, messages, imago, idle, numbered, follow, along, naps;
    long rate, fetch;
    char topic[128], pid[256];
} o = {.conns = 64, .depth = 1, .size = 1024, .seconds = 5, .warmup = 1, .topics = 1, .queues = 4,
       .batch = 16, .messages = 32, .fetch = 1 << 20, .topic = "bench"};

static unsigned char *body;
static int body_size;
static uint32_t body_crc;
static long counter, done, bytes, errors, busy, histogram[BUCKETS];
static int64_t measure_from, measure_to;
static long windows[WINDOWS_MAX];
static char first_error[200];

static void count(int64_t started, int64_t now, long messages, long size) {
    if (now < measure_from || now >= measure_to) return;
    done += messages, bytes += size;
    long window = (now - measure_from) / 20000000;
    if (window < WINDOWS_MAX) windows[window] += messages;
    uint64_t ns = now > started ? now - started : 1;
    int power = 63 - __builtin_clzll(ns);
    int sub = power > 6 ? (ns >> (power - 6)) & 63 : 0;
    int bucket = power * 64 + sub;
    histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
}

static double percentile(double share) {
    long total = 0, seen = 0;
    for (int i = 0; i < BUCKETS; i++) total += histogram[i];
    for (int i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (total && seen >= share * total) {
            int power = i / 64;
            double base = (double)(1ull << power);
            return (base + (i % 64) * base / 64) / 1000.0;
        }
    }
    return 0;
}

static void failed(const char *text, size_t size) {
    if (!errors++) snprintf(first_error, sizeof first_error, "%.*s", (int)(size < 180 ? size : 180), text);
}

static int frame(unsigned char *p, const char *header, int header_size, const void *data, int size) {
    put_be32(p, 4 + header_size + size);
    put_be32(p + 4, header_size);
    memcpy(p + 8, header, header_size);
    memcpy(p + 8 + header_size, data, size);
    return 8 + header_size + size;
}

/* What makes a send more than a plain one. */
static const char *extra_properties(void) {
    switch (o.work) {
    case TRANSACTION: return "TRAN_MSG\\u0001true\\u0002PGROUP\\u0001bench_producer\\u0002";
    case TIMER: return "TIMER_DELAY_SEC\\u00011\\u0002";
    case DELAY: return "DELAY\\u00011\\u0002";
    default: return "";
    }
}

/* Append the commit of the half message whose answer this is. */
static void commit(struct conn *c, const char *answer, size_t size, unsigned opaque) {
    char header[1024], unique[64] = "";
    const char *id = memmem(answer, size, "\"msgId\":\"", 9), *key = memmem(answer, size, "\"transactionId\":\"", 17);
    if (!id || !key) { fprintf(stderr, "half message without its place: %.*s\n", (int)size, answer); exit(2); }
    sscanf(key + 17, "%63[0-9A-Fa-f]", unique);
    int n = sprintf(header,
        "{\"code\":37,\"extFields\":{\"producerGroup\":\"bench_producer\",\"tranStateTableOffset\":\"%ld\",\"commitLogOffset\":\"%lu\","
        "\"commitOrRollback\":\"8\",\"fromTransactionCheck\":\"false\",\"msgId\":\"%s\",\"transactionId\":\"%s\"},\"flag\":0,"
        "\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
        (long)number_after(answer, size, "\"queueOffset\":\"", -1), strtoul(id + 9 + 16, NULL, 16), unique, unique, opaque | SECOND);
    c->out_have += frame(c->out + c->out_have, header, n, "", 0);
}

/* Whether a connection waits for more at the end. */
static int following(const struct conn *c) {
    return o.follow || c->work != o.work;
}

/* Append one request to the connection's output. */
static void request(struct conn *c, int64_t intended) {
    unsigned char *p = c->out + c->out_have;
    char header[1024], topic[160];
    long k = c->work == o.work ? counter++ : 0;
    int queue = (k / o.topics) % o.queues, n, opaque = c->seq & 0x3fffffff;
    if (o.topics > 1) snprintf(topic, sizeof topic, "%s-%ld", o.topic, k % o.topics);
    else strcpy(topic, o.topic);
    c->started[c->seq++ % o.depth] = intended;
    c->in_flight++;
    switch (c->work) {
    case PUT:
        n = sprintf((char *)p, "put %s %d %d 0 %u %d\r\n", topic, queue, body_size, body_crc, opaque);
        memcpy(p + n, body, body_size);
        c->out_have += n + body_size;
        return;
    case GET:
        c->out_have += sprintf((char *)p, "get %s bench_group %d %ld %ld %d\r\n", topic, c->queue, c->offset, o.fetch, opaque);
        return;
    case SEND:
    case TRANSACTION:
    case TIMER:
    case DELAY:
    case BATCH:
        n = sprintf(header,
            "{\"code\":%d,\"extFields\":{\"a\":\"bench_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"%d\",\"f\":\"%d\","
            "\"g\":\"1795258220883\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u0001%032lX\\u0002WAIT\\u0001true\\u0002%s\",\"j\":\"0\","
            "\"k\":\"false\",\"m\":\"%s\",\"n\":\"shard-0\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
            "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
            c->work == BATCH ? 320 : 310, topic, queue, c->work == TRANSACTION ? 4 : 0, k, extra_properties(),
            c->work == BATCH ? "true" : "false", opaque);
        break;
    case ROUTE:
        n = sprintf(header,
            "{\"code\":105,\"extFields\":{\"topic\":\"%s\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
            "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", topic, opaque);
        break;
    default:
        n = sprintf(header,
            "{\"code\":11,\"extFields\":{\"queueId\":\"%d\",\"maxMsgBytes\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%d\","
            "\"suspendTimeoutMillis\":\"%d\",\"commitOffset\":\"0\",\"topic\":\"%s\",\"queueOffset\":\"%ld\",\"expressionType\":\"%s\","
            "\"subscription\":\"%s\",\"subVersion\":\"0\",\"consumerGroup\":\"bench_group\"%s},\"flag\":0,\"language\":\"JAVA\","
            "\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
            c->queue, o.fetch, o.messages, following(c) ? 6 : 4, following(c) ? 1000 : 0, topic, c->offset, c->work == FILTER ? "SQL92" : "TAG",
            c->work == FILTER ? "part < 5" : "*", o.imago ? ",\"imagoBulk\":\"true\"" : "", opaque);
    }
    c->out_have += c->work >= PULL ? frame(p, header, n, "", 0) : frame(p, header, n, body, body_size);
}

static void send_out(struct conn *c) {
    while (c->out_sent < c->out_have) {
        ssize_t n = put_bytes(c->fd, c->tls, c->out + c->out_sent, c->out_have - c->out_sent);
        if (n < 0 && errno == EAGAIN) return;
        if (n < 0) die("write");
        c->out_sent += n;
    }
    c->out_sent = c->out_have = 0;
}

/* Whole MetaQ messages in a fetched block: how many, and how many bytes they take. */
static long walk(const unsigned char *p, size_t size, long *messages) {
    size_t at = 0;
    for (*messages = 0; at + 20 <= size && at + 20 + be32(p + at) <= size; (*messages)++) at += 20 + be32(p + at);
    return at;
}

static size_t metaq_answer(struct conn *c, const unsigned char *p, size_t have, unsigned *opaque, long *messages, long *size) {
    const unsigned char *end = memmem(p, have < 256 ? have : 256, "\r\n", 2);
    if (!end) return 0;
    size_t line = end - p + 2;
    long code = 200, length;
    int value = p[0] == 'v';
    if (value ? sscanf((const char *)p, "value %ld %u", &length, opaque) != 2
              : sscanf((const char *)p, "result %ld %ld %u", &code, &length, opaque) != 3) {
        fprintf(stderr, "not an answer: %.60s\n", p);
        exit(2);
    }
    if (have < line + length) return 0;
    *messages = 1, *size = body_size;
    if (value) c->offset += *size = walk(p + line, length, messages);
    else if (c->work == GET) {
        if (code == 404 || code == 301) c->offset = 0, *messages = 0;
        else failed((const char *)p, line + length);
    } else if (code != 200) failed((const char *)p, line + length);
    return line + length;
}

static size_t rocketmq_answer(struct conn *c, const unsigned char *p, size_t have, unsigned *opaque, long *messages, long *size) {
    if (have < 8) return 0;
    size_t total = be32(p) + 4, header = be32(p + 4) & 0xffffff;
    if (have < total) return 0;
    const char *text = (const char *)p + 8;
    long code = number_after(text, header, "\"code\":", -1);
    *opaque = number_after(text, header, "\"opaque\":", 0);
    *messages = c->work == BATCH ? o.batch : 1, *size = body_size;
    if (c->work == PULL || c->work == FILTER) {
        long next = number_after(text, header, "\"nextBeginOffset\":\"", 0);
        *messages = code == 0 ? next - c->offset : 0;
        *size = total - header - 8;
        c->offset = code == 0 ? next : following(c) ? c->offset : 0;
        if (code != 0 && code != 19 && code != 21) failed(text, header);
    } else if (code == 2) busy++, *messages = 0; /* flow control: not stored, asked again later */
    else if (code != 0) failed(text, header);
    else if (c->work == TRANSACTION && !(*opaque & SECOND)) commit(c, text, header, *opaque), *messages = -1;
    *opaque &= ~SECOND;
    return total;
}

static int receive(struct conn *c) {
    ssize_t got = take_bytes(c->fd, c->tls, c->in + c->have, IN_MAX - c->have);
    if (got < 0 && errno == EAGAIN) return 0;
    if (got <= 0) { fprintf(stderr, "the server closed a connection\n"); exit(2); }
    c->have += got;
    int64_t now = now_ns();
    size_t at = 0, took;
    int answers = 0;
    unsigned opaque;
    long messages, size;
    int text = c->work == PUT || c->work == GET;
    while ((took = (text ? metaq_answer : rocketmq_answer)(c, c->in + at, c->have - at, &opaque, &messages, &size))) {
        at += took;
        if (messages < 0) continue; /* a half message: its commit is on the way */
        answers++, c->in_flight--;
        if (c->work == o.work) count(c->started[opaque % o.depth], now, messages, size);
    }
    memmove(c->in, c->in + at, c->have - at);
    c->have -= at;
    return answers;
}

static double server_cpu(void) {
    double total = 0;
    char pids[256];
    strcpy(pids, o.pid);
    for (char *pid = strtok(pids, ","); pid; pid = strtok(NULL, ",")) {
        clockid_t clock;
        struct timespec t;
        if (clock_getcpuclockid(atoi(pid), &clock) || clock_gettime(clock, &t)) continue;
        total += t.tv_sec + t.tv_nsec / 1e9;
    }
    return total;
}

static void make_body(void) {
    int plain = o.size;
    unsigned char *filler = malloc(plain);
    for (int i = 0; i < plain; i++) filler[i] = 'a' + i % 23;
    if (o.work != BATCH) {
        body = filler, body_size = plain, body_crc = crc31(body, plain);
        return;
    }
    char properties[80];
    int p = sprintf(properties, "UNIQ_KEY\001%032X\002WAIT\001true\002", 7);
    if (o.numbered) p += sprintf(properties + p, "part\0010\002");
    int one = 22 + plain + p;
    body = calloc(o.batch, one), body_size = o.batch * one;
    for (int i = 0; i < o.batch; i++) {
        unsigned char *m = body + (size_t)i * one;
        put_be32(m, one), put_be32(m + 16, plain);
        memcpy(m + 20, filler, plain);
        m[20 + plain] = p >> 8, m[21 + plain] = p;
        memcpy(m + 22 + plain, properties, p);
        if (o.numbered) m[one - 2] = '0' + i % 10;
    }
}

static struct conn *open_conn(int poll, int index) {
    struct conn *c = calloc(1, sizeof *c);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(o.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (void *)&address, sizeof address)) die("connect");
    no_delay(c->fd);
    c->tls = secured(c->fd);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->queue = index % o.queues;
    c->started = calloc(o.depth, sizeof *c->started);
    c->in = malloc(IN_MAX);
    size_t out = (size_t)o.depth * (body_size + 1200);
    c->out = malloc(out < OUT_MAX ? OUT_MAX : out);
    c->work = index < o.conns ? o.work : PULL;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &e);
    return c;
}

static int open_socket(int flags) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(o.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | flags, 0);
    if (fd < 0) die("socket");
    if (connect(fd, (void *)&address, sizeof address) && errno != EINPROGRESS) die("connect");
    return fd;
}

/* Open all connections at once; each asks for the version when it is open; until all are answered. */
static void storm(int poll, int64_t start) {
    struct epoll_event e = {.events = EPOLLOUT}, ready[256];
    for (int i = 0; i < o.conns; i++) {
        e.data.fd = open_socket(SOCK_NONBLOCK);
        epoll_ctl(poll, EPOLL_CTL_ADD, e.data.fd, &e);
    }
    while (done < o.conns) {
        int n = epoll_wait(poll, ready, 256, 10000);
        if (n <= 0) { fprintf(stderr, "storm: nothing happens\n"); exit(2); }
        for (int i = 0; i < n; i++) {
            char answer[256];
            e.data.fd = ready[i].data.fd, e.events = EPOLLIN;
            if (ready[i].events & EPOLLOUT) {
                if (write(e.data.fd, "version 7\r\n", 11) != 11) die("write");
                epoll_ctl(poll, EPOLL_CTL_MOD, e.data.fd, &e);
            } else if (read(e.data.fd, answer, sizeof answer) > 0) {
                count(start, now_ns(), 1, 0);
                epoll_ctl(poll, EPOLL_CTL_DEL, e.data.fd, NULL);
            } else die("read");
        }
    }
}

static void option(const char *text) {
    char key[32];
    const char *value = strchr(text, '=');
    if (!value || value - text > 30) { fprintf(stderr, "not key=value: %s\n", text); exit(2); }
    snprintf(key, sizeof key, "%.*s", (int)(value++ - text), text);
    struct { const char *name; int *to; } ints[] = {
        {"port", &o.port}, {"conns", &o.conns}, {"depth", &o.depth}, {"size", &o.size}, {"seconds", &o.seconds},
        {"warmup", &o.warmup}, {"topics", &o.topics}, {"queues", &o.queues}, {"batch", &o.batch},
        {"messages", &o.messages}, {"imago", &o.imago}, {"idle", &o.idle}, {"numbered", &o.numbered}, {"follow", &o.follow}, {"along", &o.along}, {"naps", &o.naps}};
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        if (!strcmp(key, ints[i].name)) { *ints[i].to = atoi(value); return; }
    if (!strcmp(key, "rate")) o.rate = atol(value);
    else if (!strcmp(key, "fetch")) o.fetch = atol(value);
    else if (!strcmp(key, "topic")) snprintf(o.topic, sizeof o.topic, "%s", value);
    else if (!strcmp(key, "pid")) snprintf(o.pid, sizeof o.pid, "%s", value);
    else { fprintf(stderr, "unknown key: %s\n", key); exit(2); }
}

static int by_value(const void *a, const void *b) {
    long x = *(const long *)a, y = *(const long *)b;
    return (x > y) - (x < y);
}

static void report(double seconds, double cpu, double own) {
    int used = (int)(seconds / 0.02);
    if (used > WINDOWS_MAX) used = WINDOWS_MAX;
    qsort(windows, used, sizeof *windows, by_value);
    printf("{\"messages\":%ld,\"seconds\":%.3f,\"rate\":%.0f,\"bytes_per_second\":%.0f,\"errors\":%ld,\"first_error\":\"", done,
           seconds, done / seconds, bytes / seconds, errors);
    for (char *p = first_error; *p; p++) putchar(*p == '"' || *p == '\\' || *p < 32 ? ' ' : *p);
    printf("\",\"busy\":%ld,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f,\"max_us\":%.1f,\"w50\":%ld,\"w95\":%ld,\"server_cpu_us\":%.3f,"
           "\"client_cpu_share\":%.2f}\n",
           busy, percentile(.5), percentile(.99), percentile(.999), percentile(1), used ? windows[used / 2] * 50 : 0,
           used ? windows[used * 95 / 100] * 50 : 0, done ? cpu * 1e6 / done : 0, own / seconds);
}

int main(int argc, char **argv) {
    static const char *names[] = {"put", "send", "transaction", "timer", "delay", "batch", "get", "pull", "filter", "route", "storm"};
    enum { WORKS = sizeof names / sizeof *names };
    int work = 0;
    if (argc < 3) return fprintf(stderr, "usage: load WORK port=N [key=value …] (see load.c)\n"), 2;
    while (work < WORKS && strcmp(argv[1], names[work])) work++;
    if (work == WORKS) return fprintf(stderr, "unknown workload: %s\n", argv[1]), 2;
    o.work = work;
    for (int i = 2; i < argc; i++) option(argv[i]);
    make_body();
    int poll = epoll_create1(0);
    struct rlimit files = {1 << 16, 1 << 16};
    setrlimit(RLIMIT_NOFILE, &files);
    for (int i = 0; i < o.idle; i++) open_socket(0);
    if (o.work == STORM) {
        measure_from = now_ns(), measure_to = measure_from + 60000000000ll;
        double cpu = server_cpu(), own = (double)clock() / CLOCKS_PER_SEC;
        storm(poll, measure_from);
        report((now_ns() - measure_from) / 1e9, server_cpu() - cpu, (double)clock() / CLOCKS_PER_SEC - own);
        return 0;
    }
    struct conn **all = calloc(o.conns, sizeof *all);
    for (int i = 0; i < o.conns; i++) all[i] = open_conn(poll, i);
    int64_t start = now_ns();
    for (int i = 0; i < o.along; i++) {
        struct conn *c = open_conn(poll, o.conns + i);
        c->queue = i % o.queues;
        request(c, start);
        send_out(c);
    }
    measure_from = start + o.warmup * 1000000000ll, measure_to = measure_from + o.seconds * 1000000000ll;
    double cpu_from = -1, own_from = 0, interval = o.rate ? 1e9 / o.rate : 0, due = start;
    if (!o.rate)
        for (int i = 0; i < o.conns; i++) {
            for (int d = 0; d < o.depth; d++) request(all[i], start);
            send_out(all[i]);
        }
    struct epoll_event ready[256];
    int turn = 0;
    for (;;) {
        int64_t now = now_ns();
        if (cpu_from < 0 && now >= measure_from) cpu_from = server_cpu(), own_from = (double)clock() / CLOCKS_PER_SEC;
        if (now >= measure_to) break;
        for (; o.rate && due <= now; due += interval) {
            struct conn *c = all[turn++ % o.conns];
            if (c->in_flight >= o.depth) { failed("open loop: too many in flight", 29); continue; }
            request(c, (int64_t)due);
            send_out(c);
        }
        struct timespec nap = {.tv_nsec = o.naps && due > now ? (long)(due - now) : 0};
        int n = o.rate ? epoll_pwait2(poll, ready, 256, &nap, NULL) : epoll_wait(poll, ready, 256, 100);
        for (int i = 0; i < n; i++) {
            struct conn *c = ready[i].data.ptr;
            int answers = receive(c);
            if (answers && (!o.rate || c->work != o.work)) {
                int64_t at = now_ns();
                while (answers--) request(c, at);
            }
            if (c->out_have) send_out(c);
        }
    }
    report((now_ns() - measure_from) / 1e9, server_cpu() - cpu_from, (double)clock() / CLOCKS_PER_SEC - own_from);
    return errors ? 1 : 0;
}

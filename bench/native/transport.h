/* How a connection's bytes go: as they are, or (built with -DTLS, -lssl -lcrypto) inside of TLS 1.3, unverified. */
#ifdef TLS
#include <openssl/ssl.h>

static SSL *secured(int fd) {
    static SSL_CTX *context;
    if (!context) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    }
    SSL *tls = SSL_new(context);
    SSL_set_fd(tls, fd);
    if (SSL_connect(tls) != 1) { fprintf(stderr, "no TLS handshake\n"); exit(2); }
    return tls;
}

/* As the system's calls: -1 and EAGAIN where nothing can be done now. */
static ssize_t result(SSL *tls, int done) {
    if (done > 0) return done;
    int error = SSL_get_error(tls, done);
    if (error == SSL_ERROR_ZERO_RETURN) return 0;
    errno = error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE ? EAGAIN : EIO;
    return -1;
}

static ssize_t put_bytes(int fd, void *tls, const void *from, size_t size) {
    (void)fd;
    return result(tls, SSL_write(tls, from, size));
}

/* All that is here: what OpenSSL has taken from the socket wakes nobody. */
static ssize_t take_bytes(int fd, void *tls, unsigned char *to, size_t size) {
    size_t have = 0;
    ssize_t got = 0;
    (void)fd;
    while (have < size && (got = result(tls, SSL_read(tls, to + have, size - have))) > 0) have += got;
    return have ? (ssize_t)have : got;
}
#else
static void *secured(int fd) { (void)fd; return NULL; }
static ssize_t put_bytes(int fd, void *tls, const void *from, size_t size) { (void)tls; return write(fd, from, size); }
static ssize_t take_bytes(int fd, void *tls, void *to, size_t size) { (void)tls; return read(fd, to, size); }
#endif

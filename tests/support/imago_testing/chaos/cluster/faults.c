/* Preloaded into a broker: a wall clock that can be set, and a disk that can be slow or broken.
 *
 * The file that IMAGO_FAULTS names is mapped, so that a test turns the knobs while the broker runs:
 *   i64 nanoseconds added to the wall clock | i64 nanoseconds every sync takes longer
 *   i64 error number that every sync fails with, 0 for none
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct knobs { volatile int64_t clock_ns, sync_delay_ns, sync_errno; };
static struct knobs none;
static struct knobs *knobs = &none;
static int (*real_clock_gettime)(clockid_t, struct timespec *);
static int (*real_fsync)(int), (*real_fdatasync)(int);

__attribute__((constructor)) static void begin(void) {
    real_clock_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    const char *path = getenv("IMAGO_FAULTS");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    void *mapped = mmap(NULL, sizeof *knobs, PROT_READ, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) knobs = mapped;
    close(fd);
}

int clock_gettime(clockid_t id, struct timespec *at) {
    int result = real_clock_gettime(id, at);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE) && knobs->clock_ns) {
        int64_t ns = at->tv_sec * INT64_C(1000000000) + at->tv_nsec + knobs->clock_ns;
        at->tv_sec = ns / 1000000000;
        at->tv_nsec = ns % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return result;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}

static int slow_or_broken(int (*sync)(int), int fd) {
    int64_t ns = knobs->sync_delay_ns;
    if (ns) {
        struct timespec pause = {ns / 1000000000, ns % 1000000000};
        nanosleep(&pause, NULL);
    }
    if (knobs->sync_errno) {
        errno = (int)knobs->sync_errno;
        return -1;
    }
    return sync(fd);
}

int fsync(int fd) { return slow_or_broken(real_fsync, fd); }
int fdatasync(int fd) { return slow_or_broken(real_fdatasync, fd); }

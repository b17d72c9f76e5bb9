/*
 * The wall's clock, as many seconds off as the first eight bytes of a file say, the greatest first: preloaded for Patroni and
 * PostgreSQL of one node.
 *
 * Why not libfaketime: 0.9.10, when it leaves the monotonic clock alone, has every sleep of Python fail with EINVAL. Here nothing
 * but the three questions for the time of day are answered otherwise.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <endian.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int64_t seconds_off(void)
{
    static volatile int64_t *told;
    static volatile int looked;
    if (!looked) {
        const char *path = getenv("CAMPAIGN_CLOCK");
        int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        void *map = file >= 0 ? mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0) : MAP_FAILED;
        if (file >= 0)
            close(file);
        if (map != MAP_FAILED)
            told = map;
        looked = 1;
    }
    return told ? (int64_t)be64toh((uint64_t)*told) : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += seconds_off();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec found;
    (void)zone;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec found;
    if (clock_gettime(CLOCK_REALTIME, &found) != 0)
        return -1;
    if (now)
        *now = found.tv_sec;
    return found.tv_sec;
}

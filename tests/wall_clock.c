// A shared object for LD_PRELOAD: the wall clock of a process is off by as many seconds as stand, as a
// binary int64, in the file that WALL_CLOCK_OFFSET names. The file is mapped, so a store there sets the
// clock of the running process, as settimeofday(2) would. Waits until a time of the wall clock are
// translated back, for the kernel's own clock stays; so do the time stamps that filesystems give.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t* offset;

__attribute__((constructor)) static void start(void) {
  const char* path = getenv("WALL_CLOCK_OFFSET");
  const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (fd < 0) return;
  void* at = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
  close(fd);
  if (at != MAP_FAILED) offset = at;
}

static int64_t seconds_off(void) {
  return offset ? __atomic_load_n(offset, __ATOMIC_RELAXED) : 0;
}

static void* next(const char* name, const char* version) {
  void* found = version ? dlvsym(RTLD_NEXT, name, version) : NULL;
  return found ? found : dlsym(RTLD_NEXT, name);
}

int clock_gettime(clockid_t clock, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = next("clock_gettime", NULL);
  const int result = real(clock, now);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    now->tv_sec += seconds_off();
  return result;
}

int gettimeofday(struct timeval* restrict now, void* restrict zone) {
  (void)zone;
  struct timespec precise;
  clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME_COARSE, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

// A condition variable's clock may be the monotonic one, whose seconds are those since the machine's
// start: nothing is running for thirty years.
static struct timespec kernels(const struct timespec* until) {
  struct timespec there = *until;
  if (there.tv_sec > 1000000000) there.tv_sec -= seconds_off();
  return there;
}

int pthread_cond_timedwait(pthread_cond_t* restrict condition, pthread_mutex_t* restrict mutex,
                           const struct timespec* restrict until) {
  static int (*real)(pthread_cond_t*, pthread_mutex_t*, const struct timespec*);
  if (!real) real = next("pthread_cond_timedwait", "GLIBC_2.3.2");
  const struct timespec there = kernels(until);
  return real(condition, mutex, &there);
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const struct timespec* until) {
  static int (*real)(pthread_cond_t*, pthread_mutex_t*, clockid_t, const struct timespec*);
  if (!real) real = next("pthread_cond_clockwait", NULL);
  const struct timespec there = clock == CLOCK_REALTIME ? kernels(until) : *until;
  return real(condition, mutex, clock, &there);
}

int pthread_mutex_timedlock(pthread_mutex_t* restrict mutex,
                            const struct timespec* restrict until) {
  static int (*real)(pthread_mutex_t*, const struct timespec*);
  if (!real) real = next("pthread_mutex_timedlock", NULL);
  const struct timespec there = kernels(until);
  return real(mutex, &there);
}

int sem_timedwait(sem_t* restrict semaphore, const struct timespec* restrict until) {
  static int (*real)(sem_t*, const struct timespec*);
  if (!real) real = next("sem_timedwait", NULL);
  const struct timespec there = kernels(until);
  return real(semaphore, &there);
}

int pthread_timedjoin_np(pthread_t thread, void** value, const struct timespec* until) {
  static int (*real)(pthread_t, void**, const struct timespec*);
  if (!real) real = next("pthread_timedjoin_np", NULL);
  const struct timespec there = kernels(until);
  return real(thread, value, &there);
}

/* Preloaded into a process: makes the n-th write, flush or rename of a file and all later ones fail, as on a
   full or broken disk, after a call of fail_from(n, errno); and shifts the time of day by the seconds in the
   environment variable CLOCK_SHIFT_SECONDS. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

static long left = -1;
static int with = EIO;

void fail_from(long n, int error) { left = n; with = error; }
long calls_left(void) { return left; }

static int fails(void) {
  if (left < 0) return 0;
  if (left > 0) { left--; if (left > 0) return 0; }
  errno = with;
  return 1;
}

static int on_file(int descriptor) {
  struct stat status;
  return left >= 0 && fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

ssize_t write(int d, const void *b, size_t n) { return on_file(d) && fails() ? -1 : REAL(write)(d, b, n); }
ssize_t pwrite(int d, const void *b, size_t n, off_t o) { return on_file(d) && fails() ? -1 : REAL(pwrite)(d, b, n, o); }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) { return on_file(d) && fails() ? -1 : REAL(pwrite64)(d, b, n, o); }
int ftruncate(int d, off_t n) { return on_file(d) && fails() ? -1 : REAL(ftruncate)(d, n); }
int ftruncate64(int d, off64_t n) { return on_file(d) && fails() ? -1 : REAL(ftruncate64)(d, n); }
int fsync(int d) { return left >= 0 && fails() ? -1 : REAL(fsync)(d); }
int fdatasync(int d) { return left >= 0 && fails() ? -1 : REAL(fdatasync)(d); }
int rename(const char *a, const char *b) { return left >= 0 && fails() ? -1 : REAL(rename)(a, b); }
int mkdir(const char *p, mode_t m) { return left >= 0 && fails() ? -1 : REAL(mkdir)(p, m); }

static const volatile long *shifted;

__attribute__((constructor)) static void read_shift(void) {
  const char *file = getenv("CLOCK_SHIFT");
  int descriptor = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
  if (descriptor < 0) return;
  void *seconds = mmap(NULL, sizeof *shifted, PROT_READ, MAP_SHARED, descriptor, 0);
  if (seconds != MAP_FAILED) shifted = seconds;
  close(descriptor);
}

static long shift(void) { return shifted ? *shifted : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
  int code = REAL(clock_gettime)(clock, now);
  if (code == 0 && clock == CLOCK_REALTIME) now->tv_sec += shift();
  return code;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int code = REAL(gettimeofday)(now, zone);
  if (code == 0) now->tv_sec += shift();
  return code;
}

time_t time(time_t *out) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out) *out = now.tv_sec;
  return now.tv_sec;
}

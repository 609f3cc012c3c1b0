/* Preloaded into a process: after record_to(log, root), appends to `log` every write, truncation, flush, creation,
   renaming and removal of a file or folder below `root`, once it has succeeded, and the marks of the process itself.
   A record is "<kind> <offset> <length of data> <path>\t<other path>\n", then the data. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int out = -1;
static char below[PATH_MAX];
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static void put(const void *data, size_t size) {
  for (const char *next = data; size > 0;) {
    ssize_t written = syscall(SYS_write, out, next, size);
    if (written <= 0) return;
    next += written;
    size -= written;
  }
}

static void record(char kind, const char *path, const char *other, long offset, const void *data, size_t size) {
  char head[2 * PATH_MAX + 64];
  int length = snprintf(head, sizeof head, "%c %ld %zu %s\t%s\n", kind, offset, size, path, other);
  put(head, length);
  put(data, size);
}

void record_to(const char *log, const char *root) {
  strncpy(below, root, sizeof below - 1);
  out = REAL(open64)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

void mark(const char *text) {
  pthread_mutex_lock(&order);
  record('M', text, "", 0, "", 0);
  pthread_mutex_unlock(&order);
}

static int is_below(const char *path) {
  size_t length = strlen(below);
  return out >= 0 && strncmp(path, below, length) == 0 && (path[length] == '/' || path[length] == 0);
}

/* The path of a descriptor; return 0 if it is no file or folder below the root, or has been removed. */
static int path_of(int descriptor, char *path) {
  struct stat found;
  char link[64];
  if (out < 0 || fstat(descriptor, &found) != 0 || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  ssize_t length = readlink(link, path, PATH_MAX - 1);
  if (length < 0 || found.st_nlink == 0) return 0;
  path[length] = 0;
  return is_below(path);
}

/* The path of a name in a folder. */
static int path_at(int folder, const char *name, char *path) {
  char parent[PATH_MAX];
  if (out < 0) return 0;
  if (name[0] == '/' || folder == AT_FDCWD) {
    snprintf(path, PATH_MAX, "%s", name);
  } else {
    if (!path_of(folder, parent)) return 0;
    snprintf(path, 2 * PATH_MAX, "%s/%s", parent, name);
  }
  return is_below(path);
}

#define LOCKED(type, call, after)        \
  pthread_mutex_lock(&order);            \
  type result = call;                    \
  if (result >= 0) { after; }            \
  pthread_mutex_unlock(&order);          \
  return result;

static ssize_t written(int d, const void *b, size_t n, long offset, int positioned) {
  char path[PATH_MAX];
  if (!path_of(d, path)) return positioned ? REAL(pwrite64)(d, b, n, offset) : REAL(write)(d, b, n);
  struct stat found;
  if (!positioned) {
    fstat(d, &found);
    offset = fcntl(d, F_GETFL) & O_APPEND ? found.st_size : lseek(d, 0, SEEK_CUR);
  }
  LOCKED(ssize_t, positioned ? REAL(pwrite64)(d, b, n, offset) : REAL(write)(d, b, n),
         record('W', path, "", offset, b, result))
}

ssize_t write(int d, const void *b, size_t n) { return written(d, b, n, 0, 0); }
ssize_t pwrite(int d, const void *b, size_t n, off_t o) { return written(d, b, n, o, 1); }
ssize_t pwrite64(int d, const void *b, size_t n, off64_t o) { return written(d, b, n, o, 1); }

static int truncated(int d, long size) {
  char path[PATH_MAX];
  if (!path_of(d, path)) return REAL(ftruncate64)(d, size);
  LOCKED(int, REAL(ftruncate64)(d, size), record('T', path, "", size, "", 0))
}

int ftruncate(int d, off_t n) { return truncated(d, n); }
int ftruncate64(int d, off64_t n) { return truncated(d, n); }

static int flushed(int d) {
  char path[PATH_MAX];
  if (!path_of(d, path)) return REAL(fsync)(d);
  LOCKED(int, REAL(fsync)(d), record('F', path, "", 0, "", 0))
}

int fsync(int d) { return flushed(d); }
int fdatasync(int d) { return flushed(d); }

static int opened(int folder, const char *name, int flags, mode_t mode) {
  char path[2 * PATH_MAX];
  if (!(flags & (O_CREAT | O_TRUNC)) || (flags & O_TMPFILE) == O_TMPFILE || !path_at(folder, name, path))
    return REAL(openat64)(folder, name, flags, mode);
  int existed = access(path, F_OK) == 0;
  LOCKED(int, REAL(openat64)(folder, name, flags, mode),
         if (!existed) record('C', path, "", 0, "", 0); else if (flags & O_TRUNC) record('T', path, "", 0, "", 0))
}

static mode_t mode_of(int flags, va_list rest) {
  return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

#define OPENING(...)                            \
  va_list rest;                                 \
  va_start(rest, flags);                        \
  mode_t mode = mode_of(flags, rest);           \
  va_end(rest);                                 \
  return opened(__VA_ARGS__, flags, mode);

int open(const char *name, int flags, ...) { OPENING(AT_FDCWD, name) }
int open64(const char *name, int flags, ...) { OPENING(AT_FDCWD, name) }
int openat(int folder, const char *name, int flags, ...) { OPENING(folder, name) }
int openat64(int folder, const char *name, int flags, ...) { OPENING(folder, name) }

int mkdir(const char *name, mode_t mode) {
  char path[2 * PATH_MAX];
  if (!path_at(AT_FDCWD, name, path)) return REAL(mkdir)(name, mode);
  LOCKED(int, REAL(mkdir)(name, mode), record('D', path, "", 0, "", 0))
}

int rename(const char *from, const char *to) {
  char path[2 * PATH_MAX], other[2 * PATH_MAX];
  if (!path_at(AT_FDCWD, from, path) || !path_at(AT_FDCWD, to, other)) return REAL(rename)(from, to);
  LOCKED(int, REAL(rename)(from, to), record('R', path, other, 0, "", 0))
}

int unlinkat(int folder, const char *name, int flags) {
  char path[2 * PATH_MAX];
  if (!path_at(folder, name, path)) return REAL(unlinkat)(folder, name, flags);
  LOCKED(int, REAL(unlinkat)(folder, name, flags), record('U', path, "", 0, "", 0))
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

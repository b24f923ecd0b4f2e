// SPDX-License-Identifier: Apache-2.0
// The functions of later glibc versions that our objects and those of Debian 12
// call, for programs that run on glibc 2.28. Each says the version that has it.
// They are hidden: other libraries in the process do not find them.
#define _GNU_SOURCE

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// How programs called them before 2.33.
int __xstat(int layout, const char* path, struct stat* found);
int __lxstat(int layout, const char* path, struct stat* found);
int __fxstat(int layout, int file, struct stat* found);
int __fxstatat(int layout, int folder, const char* path, struct stat* found,
               int flags);

#pragma GCC visibility push(hidden)

// 2.33. The number means the layout of `struct stat` that all programs have.
#if defined(__x86_64__)
static const int kStatLayout = 1;
#elif defined(__aarch64__)
static const int kStatLayout = 0;
#endif

int stat(const char* path, struct stat* found) {
  return __xstat(kStatLayout, path, found);
}

int lstat(const char* path, struct stat* found) {
  return __lxstat(kStatLayout, path, found);
}

int fstat(int file, struct stat* found) {
  return __fxstat(kStatLayout, file, found);
}

int fstatat(int folder, const char* path, struct stat* found, int flags) {
  return __fxstatat(kStatLayout, folder, path, found, flags);
}

int stat64(const char*, struct stat64*) __attribute__((alias("stat")));
int lstat64(const char*, struct stat64*) __attribute__((alias("lstat")));
int fstat64(int, struct stat64*) __attribute__((alias("fstat")));
int fstatat64(int, const char*, struct stat64*, int)
    __attribute__((alias("fstatat")));

// 2.32.
const char* sigabbrev_np(int number) {
  extern const char* const sys_sigabbrev[]
      __attribute__((visibility("default")));
  return number > 0 && number < NSIG ? sys_sigabbrev[number] : NULL;
}

static locale_t untranslated;

static void MakeUntranslated(void) {
  untranslated = newlocale(LC_ALL_MASK, "C", 0);
}

// 2.32.
const char* strerrordesc_np(int number) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, MakeUntranslated);
  return untranslated == 0 ? strerror(number)
                           : strerror_l(number, untranslated);
}

// 2.32. Never true, so libstdc++ always counts with atomic instructions.
char __libc_single_threaded = 0;

// 2.30.
pid_t gettid(void) { return (pid_t)syscall(SYS_gettid); }

// The functions of the system, where it has them.
typedef int ClockWait(pthread_cond_t*, pthread_mutex_t*, clockid_t,
                      const struct timespec*);
typedef int FindObject(void*, struct dl_find_object*);
static ClockWait* system_clock_wait;
static FindObject* system_find_object;
static pthread_once_t looked_for_functions = PTHREAD_ONCE_INIT;

static void LookForFunctions(void) {
  *(void**)&system_clock_wait = dlsym(RTLD_DEFAULT, "pthread_cond_clockwait");
  *(void**)&system_find_object = dlsym(RTLD_DEFAULT, "_dl_find_object");
}

// 2.30. Before, a wait follows the wall clock. It wakes after at most a second,
// as it may at any time, so that the caller looks at its own clock although
// someone set the wall clock back.
int pthread_cond_clockwait(pthread_cond_t* cond, pthread_mutex_t* mutex,
                           clockid_t clock, const struct timespec* until) {
  static const int64_t kSecond = 1000000000;
  pthread_once(&looked_for_functions, LookForFunctions);
  if (system_clock_wait != NULL) {
    return system_clock_wait(cond, mutex, clock, until);
  }
  struct timespec now, wall;
  if (clock_gettime(clock, &now) != 0) return EINVAL;
  clock_gettime(CLOCK_REALTIME, &wall);
  const time_t seconds = until->tv_sec - now.tv_sec;
  if (seconds < -1) return ETIMEDOUT;
  const int is_long = seconds > 1;
  int64_t wait = kSecond;
  if (!is_long) wait = seconds * kSecond + until->tv_nsec - now.tv_nsec;
  if (wait <= 0) return ETIMEDOUT;
  wall.tv_sec += (wall.tv_nsec + wait) / kSecond;
  wall.tv_nsec = (wall.tv_nsec + wait) % kSecond;
  const int result = pthread_cond_timedwait(cond, mutex, &wall);
  return is_long && result == ETIMEDOUT ? 0 : result;
}

// 2.36, for std::random_device. As in glibc, the process cannot continue
// without random bytes.
uint32_t arc4random(void) {
  uint32_t word = 0;
  if (getentropy(&word, sizeof(word)) != 0) abort();
  return word;
}

// What VisitObject looks for, and where it puts what it found.
struct Search {
  uintptr_t address;
  struct dl_find_object* found;
};

static int VisitObject(struct dl_phdr_info* object, size_t size, void* data) {
  (void)size;
  struct Search* search = data;
  const ElfW(Phdr)* frames = NULL;
  int is_inside = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* part = &object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + part->p_vaddr;
    if (part->p_type == PT_GNU_EH_FRAME) frames = part;
    if (part->p_type == PT_LOAD && search->address >= begin &&
        search->address - begin < part->p_memsz) {
      is_inside = 1;
      search->found->dlfo_map_start = (void*)begin;
      search->found->dlfo_map_end = (void*)(begin + part->p_memsz);
    }
  }
  if (!is_inside || frames == NULL) return 0;
  search->found->dlfo_flags = 0;
  search->found->dlfo_link_map = NULL;
  search->found->dlfo_eh_frame = (void*)(object->dlpi_addr + frames->p_vaddr);
  return 1;
}

// 2.35. Where the unwinder finds the tables for the code at an address.
int _dl_find_object(void* address, struct dl_find_object* found) {
  pthread_once(&looked_for_functions, LookForFunctions);
  if (system_find_object != NULL) return system_find_object(address, found);
  struct Search search = {(uintptr_t)address, found};
  return dl_iterate_phdr(VisitObject, &search) == 1 ? 0 : -1;
}

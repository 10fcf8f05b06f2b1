/* Memory and threads that run out when a test wants it: stands in front of the C library's functions, in the program
 * and in every library that it loads. Knows nothing of who calls. */
#define _GNU_SOURCE
#include "faults.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t count, size_t bytes);
extern void *__libc_realloc(void *memory, size_t bytes);
extern void *__libc_memalign(size_t alignment, size_t bytes);
extern void __libc_free(void *memory);

typedef struct Fault {
  _Atomic long countdown; /* calls until one fails; 0: none does */
  _Atomic int for_good;   /* all that follow fail too */
  _Atomic int fired;
} Fault;

static Fault faults[FAULT_KINDS];
static _Atomic long live;

static int fails(int kind) {
  Fault *fault = &faults[kind];
  if (atomic_load(&fault->fired)) {
    return atomic_load(&fault->for_good);
  }
  if (atomic_load(&fault->countdown) <= 0 || atomic_fetch_sub(&fault->countdown, 1) != 1) {
    return 0;
  }
  atomic_store(&fault->fired, 1);
  return 1;
}

void fault_arm(int kind, long number, int for_good) {
  atomic_store(&faults[kind].for_good, for_good);
  atomic_store(&faults[kind].countdown, number);
}

int fault_disarm(int kind) {
  atomic_store(&faults[kind].countdown, 0);
  atomic_store(&faults[kind].for_good, 0);
  return atomic_exchange(&faults[kind].fired, 0);
}

long fault_live(void) {
  return atomic_load(&live);
}

static void *counted(void *memory) {
  if (memory) {
    atomic_fetch_add(&live, 1);
  }
  return memory;
}

static void *refused(void) {
  errno = ENOMEM;
  return NULL;
}

void *malloc(size_t bytes) {
  return fails(FAULT_MEMORY) ? refused() : counted(__libc_malloc(bytes));
}

void *calloc(size_t count, size_t bytes) {
  return fails(FAULT_MEMORY) ? refused() : counted(__libc_calloc(count, bytes));
}

void *memalign(size_t alignment, size_t bytes) {
  return fails(FAULT_MEMORY) ? refused() : counted(__libc_memalign(alignment, bytes));
}

void *aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  void *made = memalign(alignment, bytes);
  if (made) {
    *memory = made;
  }
  return made ? 0 : ENOMEM;
}

void free(void *memory) {
  if (memory) {
    atomic_fetch_sub(&live, 1);
  }
  __libc_free(memory);
}

void *realloc(void *memory, size_t bytes) {
  if (!memory) {
    return malloc(bytes);
  }
  if (!bytes) {
    free(memory);
    return NULL;
  }
  return fails(FAULT_MEMORY) ? refused() : __libc_realloc(memory, bytes);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument) {
  typedef int (*Create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  static Create create;
  if (fails(FAULT_THREAD)) {
    return EAGAIN;
  }
  if (!create) {
    *(void **)&create = dlsym(RTLD_NEXT, "pthread_create");
  }
  return create(thread, attributes, body, argument);
}

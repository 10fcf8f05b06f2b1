/* SPDX-License-Identifier: Apache-2.0
 *
 * Instances of a program: their memory, their threads, the barrier, and the checks at the boundary. Compiled for the
 * architecture's baseline and into every model library; knows nothing of what the program computes. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif

#include "relaybuild/checks.h"
#include "relaybuild/program.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#endif
#if !defined(RB_PORTABLE_WAIT) && !defined(__linux__)
#define RB_PORTABLE_WAIT 1
#elif !defined(RB_PORTABLE_WAIT)
#define RB_PORTABLE_WAIT 0
#include <linux/futex.h>
#endif

enum {
  RB_CACHE_LINE = 64,
  RB_HUGE_PAGE = 2 << 20,
  RB_MAX_THREADS = 1024,
  RB_SPIN_NANOSECONDS = 50000,      /* of a thread without work: longer than a futex wake-up */
  RB_BARRIER_NANOSECONDS = 1000000, /* of a thread whose peers work: far shorter than a time slice */
  RB_SPINS_PER_CLOCK = 64,
  RB_SEGMENTS = 32,
  RB_FIRST_SEGMENT_BYTES = 256 << 10,
  RB_WORKER_STACK_BYTES = 8 << 20,
  RB_STACK_RESERVE_BYTES = 48 << 10, /* of the C stack, for kernels, barriers and signal handlers */
  RB_UNKNOWN_STACK_BYTES = 256 << 10
};

#define RB_SAME_PLACE(field)                                                                                           \
  _Static_assert(offsetof(RbProgram, field) == offsetof(RbModelInfo, field), "RbProgram." #field)

RB_SAME_PLACE(abi_version);
RB_SAME_PLACE(name);
RB_SAME_PLACE(target);
RB_SAME_PLACE(cpu_features);
RB_SAME_PLACE(num_inputs);
RB_SAME_PLACE(num_outputs);
RB_SAME_PLACE(inputs);
RB_SAME_PLACE(outputs);
RB_SAME_PLACE(arena_bytes);
RB_SAME_PLACE(scratch_bytes);
RB_SAME_PLACE(weight_bytes);
RB_SAME_PLACE(metadata);

/* An instrumented frame of the C stack is larger than a plain one. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RB_NATIVE_SCALE 6u
#else
#define RB_NATIVE_SCALE 1u
#endif

#if defined(__x86_64__) || defined(__i386__)

static inline void rb_pause(void) {
  __asm__ volatile("pause");
}

#else

static inline void rb_pause(void) {
#if defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#endif

/* The number of processors that this process may use, at least 1. */
static int32_t rb_cpu_count(void) {
#if defined(__linux__)
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
    return CPU_COUNT(&mask);
  }
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online < 1 ? 1 : online > RB_MAX_THREADS ? RB_MAX_THREADS : (int32_t)online;
}

/* Aligned, uninitialised memory for free(); NULL when there is none. Large blocks ask for huge pages. */
static void *rb_allocate(size_t bytes) {
  const size_t alignment = bytes >= 2 * (size_t)RB_HUGE_PAGE ? RB_HUGE_PAGE : RB_CACHE_LINE;
  if (bytes > SIZE_MAX - alignment) {
    return NULL;
  }
  const size_t rounded = bytes ? (bytes + alignment - 1) / alignment * alignment : alignment;
  void *memory = aligned_alloc(alignment, rounded);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  if (memory && alignment == RB_HUGE_PAGE) {
    madvise(memory, rounded, MADV_HUGEPAGE);
  }
#endif
  return memory;
}

/* A counter that threads wait on. */
typedef struct RbEvent {
  _Alignas(64) _Atomic uint32_t count;
  _Atomic uint32_t sleepers;
#if RB_PORTABLE_WAIT
  pthread_mutex_t mutex;
  pthread_cond_t condition;
#endif
} RbEvent;

#if RB_PORTABLE_WAIT

/* Forgets all sleepers; the counter stays. */
static void rb_event_reset(RbEvent *event) {
  atomic_store(&event->sleepers, 0);
  pthread_mutex_init(&event->mutex, NULL);
  pthread_cond_init(&event->condition, NULL);
}

static void rb_event_destroy(RbEvent *event) {
  pthread_cond_destroy(&event->condition);
  pthread_mutex_destroy(&event->mutex);
}

static void rb_sleep_while(RbEvent *event, uint32_t count) {
  pthread_mutex_lock(&event->mutex);
  while (atomic_load(&event->count) == count) {
    pthread_cond_wait(&event->condition, &event->mutex);
  }
  pthread_mutex_unlock(&event->mutex);
}

static void rb_wake_all(RbEvent *event) {
  pthread_mutex_lock(&event->mutex);
  pthread_cond_broadcast(&event->condition);
  pthread_mutex_unlock(&event->mutex);
}

#else

/* Forgets all sleepers; the counter stays. */
static void rb_event_reset(RbEvent *event) {
  atomic_store(&event->sleepers, 0);
}

static void rb_event_destroy(RbEvent *event) {
  (void)event;
}

static void rb_sleep_while(RbEvent *event, uint32_t count) {
  syscall(SYS_futex, &event->count, FUTEX_WAIT_PRIVATE, count, NULL, NULL, 0);
}

static void rb_wake_all(RbEvent *event) {
  syscall(SYS_futex, &event->count, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
}

#endif

static uint32_t rb_event_count(RbEvent *event) {
  return atomic_load_explicit(&event->count, memory_order_acquire);
}

static int64_t rb_clock(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* True once the event has left `count`; false after `nanoseconds` without that. */
static bool rb_event_spin(RbEvent *event, uint32_t count, int64_t nanoseconds) {
  int64_t end = 0;
  while (nanoseconds > 0) {
    for (int i = 0; i < RB_SPINS_PER_CLOCK; ++i) {
      if (rb_event_count(event) != count) {
        return true;
      }
      rb_pause();
    }
    const int64_t now = rb_clock();
    end = end ? end : now + nanoseconds;
    if (now >= end) {
      break;
    }
  }
  return rb_event_count(event) != count;
}

/* Returns when the event has left `count`. Announcing the sleeper before the last look at the counter, against
 * advancing before the look at the sleepers, is what no wake-up can slip through: both are sequentially consistent. */
static void rb_event_wait(RbEvent *event, uint32_t count, int64_t spin_nanoseconds) {
  if (rb_event_spin(event, count, spin_nanoseconds)) {
    return;
  }
  atomic_fetch_add(&event->sleepers, 1);
  while (atomic_load(&event->count) == count) {
    rb_sleep_while(event, count);
  }
  atomic_fetch_sub(&event->sleepers, 1);
}

static void rb_event_advance(RbEvent *event) {
  atomic_fetch_add(&event->count, 1);
  if (atomic_load(&event->sleepers)) {
    rb_wake_all(event);
  }
}

struct RbBarrier {
  RbEvent phase;
  _Alignas(64) _Atomic int32_t arrived;
  int64_t spin_nanoseconds;
};

static void rb_meet(struct RbBarrier *barrier, int32_t threads, int64_t spin_nanoseconds) {
  if (threads <= 1) {
    return;
  }
  const uint32_t phase = rb_event_count(&barrier->phase);
  if (atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel) + 1 < threads) {
    rb_event_wait(&barrier->phase, phase, spin_nanoseconds);
    return;
  }
  atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
  rb_event_advance(&barrier->phase);
}

void rb_barrier(struct RbBarrier *barrier, int32_t threads) {
  rb_meet(barrier, threads, barrier->spin_nanoseconds);
}

void rb_barrier_parked(struct RbBarrier *barrier, int32_t threads) {
  rb_meet(barrier, threads, 0);
}

/* Memory for calls: segments, each twice as large as the one before, that stay where they are and are kept for the next
 * run. Threads find their place in it without talking to each other; whoever first needs a segment allocates it. */
typedef struct RbStack {
  _Atomic(unsigned char *) segments[RB_SEGMENTS];
  size_t limit;                /* bytes of a segment, at most */
  _Atomic size_t native_limit; /* bytes of the C stack that calls of this run may take in each thread */
  int32_t depth_limit;         /* calls inside each other, at most; 0: as the stacks allow */
  _Atomic RbStatus status;
} RbStack;

/* Stands for a segment that could not be allocated, so that all threads agree on it. */
static unsigned char rb_no_segment;

static RbStatus rb_stop_calls(RbStack *stack, RbStatus status) {
  atomic_store(&stack->status, status);
  return status;
}

/* The memory of a segment, or NULL on every thread. */
static unsigned char *rb_segment(RbStack *stack, int32_t number) {
  unsigned char *found = atomic_load_explicit(&stack->segments[number], memory_order_acquire);
  if (!found) {
    unsigned char *made = rb_allocate((size_t)RB_FIRST_SEGMENT_BYTES << number);
    if (atomic_compare_exchange_strong(&stack->segments[number], &found, made ? made : &rb_no_segment)) {
      found = made ? made : &rb_no_segment;
    } else {
      free(made);
    }
  }
  return found == &rb_no_segment ? NULL : found;
}

RbStatus rb_call(const RbFrame *caller, RbFrame *callee, const void *const *inputs, void *const *outputs,
                 size_t arena_bytes, size_t native_bytes) {
  RbStack *stack = caller->stack;
  *callee = *caller;
  callee->inputs = inputs;
  callee->outputs = outputs;
  callee->native_bytes += native_bytes * RB_NATIVE_SCALE;
  ++callee->depth;
  if (callee->native_bytes > atomic_load_explicit(&stack->native_limit, memory_order_relaxed) ||
      (stack->depth_limit && callee->depth > stack->depth_limit)) {
    return rb_stop_calls(stack, RB_ERROR_CALL_DEPTH);
  }
  const size_t size = (arena_bytes + RB_CACHE_LINE - 1) / RB_CACHE_LINE * RB_CACHE_LINE;
  while (callee->position + size > (size_t)RB_FIRST_SEGMENT_BYTES << callee->segment) {
    callee->position = 0;
    ++callee->segment;
    if (callee->segment == RB_SEGMENTS || (size_t)RB_FIRST_SEGMENT_BYTES << callee->segment > stack->limit) {
      return rb_stop_calls(stack, RB_ERROR_OUT_OF_MEMORY);
    }
  }
  unsigned char *segment = rb_segment(stack, callee->segment);
  if (!segment) {
    return rb_stop_calls(stack, RB_ERROR_OUT_OF_MEMORY);
  }
  callee->arena = segment + callee->position;
  callee->position += size;
  return RB_OK;
}

static void rb_free_stack(RbStack *stack) {
  for (int32_t i = 0; i < RB_SEGMENTS; ++i) {
    unsigned char *segment = atomic_load(&stack->segments[i]);
    free(segment == &rb_no_segment ? NULL : segment);
  }
}

/* How far the calling thread's C stack reaches below this function, less a reserve. */
static size_t rb_native_room(void) {
  size_t room = RB_UNKNOWN_STACK_BYTES;
#if defined(__linux__)
  static _Thread_local uintptr_t lowest, highest;
  pthread_attr_t attributes;
  if (!lowest && pthread_getattr_np(pthread_self(), &attributes) == 0) {
    void *address = NULL;
    size_t size = 0, guard = 0;
    pthread_attr_getstack(&attributes, &address, &size);
    pthread_attr_getguardsize(&attributes, &guard);
    pthread_attr_destroy(&attributes);
    lowest = (uintptr_t)address + guard;
    highest = (uintptr_t)address + size;
  }
  /* a coroutine may run on a stack of its own */
  const uintptr_t here = (uintptr_t)__builtin_frame_address(0);
  if (lowest < here && here < highest) {
    room = here - lowest;
  }
#endif
  return room > RB_STACK_RESERVE_BYTES ? room - RB_STACK_RESERVE_BYTES : 0;
}

/* Before a run: nothing failed yet, and the smallest of the threads' C stacks bounds the calls. */
static void rb_reset_stack(RbStack *stack, int32_t threads) {
  const size_t room = rb_native_room(), worker = RB_WORKER_STACK_BYTES - RB_STACK_RESERVE_BYTES;
  atomic_store_explicit(&stack->native_limit, threads > 1 && worker < room ? worker : room, memory_order_relaxed);
  atomic_store_explicit(&stack->status, RB_OK, memory_order_relaxed);
  for (int32_t i = 0; i < RB_SEGMENTS; ++i) {
    if (atomic_load_explicit(&stack->segments[i], memory_order_relaxed) == &rb_no_segment) {
      atomic_store_explicit(&stack->segments[i], NULL, memory_order_relaxed);
    }
  }
}

/* Lets the C stack of the calling thread, too, bound the calls of the run that is about to begin. */
static void rb_limit_stack(RbStack *stack) {
  const size_t room = rb_native_room();
  size_t found = atomic_load_explicit(&stack->native_limit, memory_order_relaxed);
  while (room < found && !atomic_compare_exchange_weak(&stack->native_limit, &found, room)) {
  }
}

/* The largest segment: with the smaller ones it takes less than half of the machine's memory. */
static size_t rb_largest_segment(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && bytes > 0 ? (size_t)pages / 4 * (size_t)bytes : (size_t)1 << 30;
}

typedef struct RbWorker {
  pthread_t thread;
  RbInstance *instance;
  int32_t index;
  uint32_t start; /* the count of `start` before the worker's first job */
} RbWorker;

/* Whether the tasks of a run go on: they wait in front of the program until all have come, or the pool gives up. */
typedef enum RbDecision { RB_UNDECIDED, RB_BEGIN, RB_GIVE_UP } RbDecision;

struct RbInstance {
  const RbProgram *program;
  int32_t threads;
  RbThreadPool pool; /* of the application; `run` is NULL where the threads are the instance's own */
  RbFrame frame;
  RbStack stack;
  const void **inputs;
  void **outputs;
  size_t *tensor_bytes; /* inputs, then outputs */

  _Atomic int32_t holder; /* who is inside run(): 0 nobody, else 1 (one thread) or a process id (several) */

  /* The rest serves instances of several threads. */
  int32_t cpus;
  int32_t workers_process; /* the process in which the workers exist */
  RbWorker *workers;       /* threads - 1 */
  bool stop;
  _Atomic int32_t decision;               /* an RbDecision, about the tasks of a pool */
  uint32_t undecided;                     /* the count of `start` before the decision */
  _Alignas(64) _Atomic int32_t remaining; /* workers still in the current job, or tasks that have not come yet */
  int64_t idle_spin_nanoseconds;
  RbEvent start; /* advanced once per job */
  RbEvent done;
  struct RbBarrier barrier;
};

/* Threads inside run() in all instances of this library: when they outnumber the processors, nobody spins. */
static _Atomic int32_t rb_active_threads;

static void rb_reset_events(RbInstance *instance) {
  rb_event_reset(&instance->start);
  rb_event_reset(&instance->done);
  rb_event_reset(&instance->barrier.phase);
}

static void *rb_worker_main(void *argument) {
  RbWorker *worker = argument;
  RbInstance *instance = worker->instance;
  int64_t spin = instance->cpus >= instance->threads ? RB_SPIN_NANOSECONDS : 0;
  for (uint32_t seen = worker->start;; ++seen) {
    rb_event_wait(&instance->start, seen, spin);
    if (instance->stop) {
      return NULL;
    }
    spin = instance->idle_spin_nanoseconds;
    instance->program->run(&instance->frame, worker->index, instance->threads);
    if (atomic_fetch_sub_explicit(&instance->remaining, 1, memory_order_acq_rel) == 1) {
      rb_event_advance(&instance->done);
    }
  }
}

static void rb_stop_workers(RbInstance *instance, int32_t count) {
  instance->stop = true;
  rb_event_advance(&instance->start);
  for (int32_t i = 0; i < count; ++i) {
    pthread_join(instance->workers[i].thread, NULL);
  }
  instance->stop = false;
}

static RbStatus rb_start_workers(RbInstance *instance) {
  sigset_t all, previous;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &previous);
  pthread_attr_t attributes, *chosen = NULL;
  int error = 0;
  if (instance->program->makes_calls) {
    error = pthread_attr_init(&attributes);
    chosen = error ? NULL : &attributes;
    error = error ? error : pthread_attr_setstacksize(&attributes, RB_WORKER_STACK_BYTES);
  }
  int32_t started = 0;
  const uint32_t start = rb_event_count(&instance->start);
  for (; started < instance->threads - 1 && !error; started += !error) {
    RbWorker *worker = &instance->workers[started];
    worker->instance = instance;
    worker->index = started + 1;
    worker->start = start;
    error = pthread_create(&worker->thread, chosen, rb_worker_main, worker);
  }
  if (chosen) {
    pthread_attr_destroy(chosen);
  }
  pthread_sigmask(SIG_SETMASK, &previous, NULL);
  if (error) {
    rb_stop_workers(instance, started);
    return rb_fail(RB_ERROR_THREAD, "cannot start thread %" PRId32 " of %" PRId32 " for model '%s': %s", started + 2,
                   instance->threads, instance->program->name, strerror(error));
  }
  instance->workers_process = (int32_t)getpid();
  return RB_OK;
}

/* In a child of fork() the workers are gone, and what they were doing at that moment has to be forgotten. */
static RbStatus rb_restart_workers(RbInstance *instance) {
  rb_reset_events(instance);
  atomic_store(&instance->barrier.arrived, 0);
  return rb_start_workers(instance);
}

/* A whole number from 1 to `most` out of the environment; *value stays where the variable is not set. */
static RbStatus rb_environment_number(const char *name, int32_t most, int32_t *value) {
  const char *text = getenv(name);
  if (!text || !*text) {
    return RB_OK;
  }
  char *end;
  errno = 0;
  const long number = strtol(text, &end, 10);
  if (*end || errno || number < 1 || number > most) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "%s is '%s', expected a whole number from 1 to %" PRId32, name, text,
                   most);
  }
  *value = (int32_t)number;
  return RB_OK;
}

/* Replaces 0 by all threads that the pool has. */
static RbStatus rb_choose_of_pool(const RbThreadPool *pool, int32_t *threads) {
  if (!pool->run) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "the thread pool's function run is a null pointer");
  }
  if (pool->threads < 1 || pool->threads > RB_MAX_THREADS) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "the thread pool has %" PRId32 " threads, expected 1 to %d",
                   pool->threads, RB_MAX_THREADS);
  }
  if (*threads > pool->threads) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "threads is %" PRId32 ", the thread pool has %" PRId32, *threads,
                   pool->threads);
  }
  *threads = *threads ? *threads : pool->threads;
  return RB_OK;
}

/* Replaces 0 by the default and applies the program's limit; `pool` may be NULL. */
static RbStatus rb_choose_threads(const RbProgram *program, const RbThreadPool *pool, int32_t *threads) {
  if (*threads < 0 || *threads > RB_MAX_THREADS) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "threads is %" PRId32 ", expected 1 to %d, or 0 for the default",
                   *threads, RB_MAX_THREADS);
  }
  if (pool) {
    const RbStatus status = rb_choose_of_pool(pool, threads);
    if (status) {
      return status;
    }
  }
  if (*threads == 0) {
    const RbStatus status = rb_environment_number("RELAYBUILD_NUM_THREADS", RB_MAX_THREADS, threads);
    if (status) {
      return status;
    }
  }
  if (*threads == 0) {
    *threads = program->default_threads > 0 ? program->default_threads : rb_cpu_count();
  }
  if (program->max_threads > 0 && *threads > program->max_threads) {
    *threads = program->max_threads;
  }
  return RB_OK;
}

static RbStatus rb_check_program(const RbProgram *program) {
  if (program->abi_version != RELAYBUILD_ABI_VERSION) {
    return rb_fail(RB_ERROR_INTERNAL, "model '%s' has interface version %" PRIu32 ", its runtime %u", program->name,
                   program->abi_version, RELAYBUILD_ABI_VERSION);
  }
  if ((uintptr_t)program->weights % RB_CACHE_LINE) {
    return rb_fail(RB_ERROR_INTERNAL, "the weights of model '%s' are not aligned to %d bytes", program->name,
                   RB_CACHE_LINE);
  }
  return rb_check_cpu(program);
}

/* Fills an instance whose pointers are NULL; on failure the caller frees what is there. */
static bool rb_allocate_parts(RbInstance *instance) {
  const RbProgram *program = instance->program;
  const size_t inputs = (size_t)program->num_inputs, outputs = (size_t)program->num_outputs;
  const size_t stride = (program->scratch_bytes + RB_CACHE_LINE - 1) / RB_CACHE_LINE * RB_CACHE_LINE;
  instance->inputs = calloc(inputs + 1, sizeof *instance->inputs);
  instance->outputs = calloc(outputs + 1, sizeof *instance->outputs);
  instance->tensor_bytes = calloc(inputs + outputs + 1, sizeof *instance->tensor_bytes);
  instance->workers = calloc((size_t)instance->threads, sizeof *instance->workers);
  if (!instance->inputs || !instance->outputs || !instance->tensor_bytes || !instance->workers) {
    return false;
  }
  for (size_t i = 0; i < inputs; ++i) {
    instance->tensor_bytes[i] = rb_tensor_bytes(&program->inputs[i]);
  }
  for (size_t i = 0; i < outputs; ++i) {
    instance->tensor_bytes[inputs + i] = rb_tensor_bytes(&program->outputs[i]);
  }
  if (stride && (size_t)instance->threads > SIZE_MAX / stride) {
    return false;
  }
  instance->frame.arena = rb_allocate(program->arena_bytes);
  instance->frame.scratch = rb_allocate(stride * (size_t)instance->threads);
  instance->frame.scratch_stride = stride;
  instance->frame.weights = program->weights;
  instance->frame.inputs = instance->inputs;
  instance->frame.outputs = instance->outputs;
  instance->frame.barrier = &instance->barrier;
  instance->frame.stack = &instance->stack;
  return instance->frame.arena && instance->frame.scratch;
}

static void rb_free_instance(RbInstance *instance) {
  rb_event_destroy(&instance->start);
  rb_event_destroy(&instance->done);
  rb_event_destroy(&instance->barrier.phase);
  rb_free_stack(&instance->stack);
  rb_regions_destroy(instance->frame.regions);
  free(instance->frame.scratch);
  free(instance->frame.arena);
  free(instance->workers);
  free(instance->tensor_bytes);
  free(instance->outputs);
  free(instance->inputs);
  free(instance);
}

static RbStatus rb_instance_open(const RbProgram *program, int32_t threads, const RbThreadPool *pool,
                                 RbInstance **out) {
  RbInstance *instance = rb_allocate(sizeof *instance);
  if (instance) {
    memset(instance, 0, sizeof *instance);
    instance->program = program;
    instance->threads = threads;
    if (pool) {
      instance->pool = *pool;
    }
    rb_reset_events(instance);
  }
  RbStatus status = RB_OK;
  if (instance && program->makes_calls) {
    instance->stack.limit = rb_largest_segment();
    status = rb_environment_number("RELAYBUILD_MAX_CALL_DEPTH", INT32_MAX - 1, &instance->stack.depth_limit);
  }
  if (status) {
    rb_free_instance(instance);
    return status;
  }
  if (!instance || !rb_allocate_parts(instance)) {
    if (instance) {
      rb_free_instance(instance);
    }
    return rb_fail(RB_ERROR_OUT_OF_MEMORY,
                   "out of memory: model '%s' needs an arena of %zu bytes and %" PRId32 " times %zu bytes of scratch",
                   program->name, program->arena_bytes, threads, program->scratch_bytes);
  }
  status = rb_regions_create(program, &instance->frame.regions);
  if (!status && threads > 1) {
    instance->cpus = rb_cpu_count();
    status = pool ? RB_OK : rb_start_workers(instance);
  }
  if (status) {
    rb_free_instance(instance);
    return status;
  }
  *out = instance;
  return RB_OK;
}

static bool rb_is_zero(const unsigned char *bytes, size_t count) {
  while (count && !bytes[count - 1]) {
    --count;
  }
  return !count;
}

/* What the caller's options say; theirs may be of an earlier or a later release. */
static RbStatus rb_read_options(const RbCreateOptions *given, RbCreateOptions *options) {
  memset(options, 0, sizeof *options);
  if (!given) {
    return RB_OK;
  }
  const size_t size = given->struct_size, least = offsetof(RbCreateOptions, pool);
  if (size < least) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "create_with: the options have a struct_size of %zu, expected %zu", size,
                   sizeof *options);
  }
  if (size > sizeof *options && !rb_is_zero((const unsigned char *)given + sizeof *options, size - sizeof *options)) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT,
                   "create_with: the options ask for what a later release offers: compile the model again");
  }
  memcpy(options, given, size < sizeof *options ? size : sizeof *options);
  return RB_OK;
}

RbStatus rb_instance_create_with(const RbProgram *program, const RbCreateOptions *given, RbInstance **out) {
  RbCreateOptions options;
  if (!out) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "create: the place for the instance is a null pointer");
  }
  *out = NULL;
  program = rb_level_program(program);
  RbStatus status = rb_check_program(program);
  if (!status) {
    status = rb_read_options(given, &options);
  }
  if (!status) {
    status = rb_choose_threads(program, options.pool, &options.threads);
  }
  return status ? status : rb_instance_open(program, options.threads, options.pool, out);
}

RbStatus rb_instance_create(const RbProgram *program, int32_t threads, RbInstance **out) {
  const RbCreateOptions options = {.struct_size = sizeof options, .threads = threads};
  return rb_instance_create_with(program, &options, out);
}

void rb_instance_destroy(RbInstance *instance) {
  if (!instance) {
    return;
  }
  if (instance->threads > 1 && instance->workers_process == (int32_t)getpid()) {
    rb_stop_workers(instance, instance->threads - 1);
  } else if (instance->threads > 1) {
    rb_reset_events(instance);
  }
  rb_free_instance(instance);
}

int32_t rb_instance_num_threads(const RbInstance *instance) {
  return instance ? instance->threads : 0;
}

/* The output at `index` against all inputs and the outputs before it. */
static RbStatus rb_check_overlap(const RbInstance *instance, int32_t index) {
  const RbProgram *program = instance->program;
  const size_t *input_bytes = instance->tensor_bytes, *output_bytes = input_bytes + program->num_inputs;
  const RbTensorInfo *info = &program->outputs[index];
  const void *output = instance->outputs[index];
  const size_t bytes = output_bytes[index];
  RbStatus status = RB_OK;
  for (int32_t i = 0; i < program->num_inputs && !status; ++i) {
    status = rb_check_apart(info, output, bytes, "input", &program->inputs[i], instance->inputs[i], input_bytes[i]);
  }
  for (int32_t i = 0; i < index && !status; ++i) {
    status = rb_check_apart(info, output, bytes, "output", &program->outputs[i], instance->outputs[i], output_bytes[i]);
  }
  return status;
}

static RbStatus rb_bind_tensors(RbInstance *instance, const DLTensor *const *inputs, DLTensor *const *outputs) {
  const RbProgram *program = instance->program;
  const size_t *bytes = instance->tensor_bytes;
  RbStatus status = RB_OK;
  for (int32_t i = 0; i < program->num_inputs && !status; ++i) {
    void *data = NULL;
    status = rb_check_tensor("input", &program->inputs[i], *bytes++, inputs[i], &data);
    instance->inputs[i] = data;
  }
  for (int32_t i = 0; i < program->num_outputs && !status; ++i) {
    status = rb_check_tensor("output", &program->outputs[i], *bytes++, outputs[i], &instance->outputs[i]);
    status = status ? status : rb_check_overlap(instance, i);
  }
  return status;
}

static RbStatus rb_check_counts(const RbProgram *program, const void *inputs, int32_t num_inputs, const void *outputs,
                                int32_t num_outputs) {
  if (num_inputs != program->num_inputs || num_outputs != program->num_outputs) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT,
                   "run: got %" PRId32 " inputs and %" PRId32 " outputs, model '%s' has %" PRId32 " and %" PRId32,
                   num_inputs, num_outputs, program->name, program->num_inputs, program->num_outputs);
  }
  if ((num_inputs && !inputs) || (num_outputs && !outputs)) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "run: the list of %s is a null pointer",
                   num_inputs && !inputs ? "inputs" : "outputs");
  }
  return RB_OK;
}

/* Wakes the workers once, takes part as thread 0, and returns when all have finished. */
static void rb_run_own(RbInstance *instance, int64_t spin) {
  const uint32_t done = rb_event_count(&instance->done);
  atomic_store_explicit(&instance->remaining, instance->threads - 1, memory_order_relaxed);
  rb_event_advance(&instance->start);
  instance->program->run(&instance->frame, 0, instance->threads);
  rb_event_wait(&instance->done, done, spin ? RB_BARRIER_NANOSECONDS : 0);
}

static void rb_decide(RbInstance *instance, RbDecision decision) {
  int32_t found = RB_UNDECIDED;
  if (atomic_compare_exchange_strong(&instance->decision, &found, (int32_t)decision)) {
    rb_event_advance(&instance->start);
  }
}

/* One of the tasks that a pool runs, or, with a negative number, the word that it cannot run all. */
static void rb_task(void *argument, int32_t thread) {
  RbInstance *instance = argument;
  if (thread < 0) {
    rb_decide(instance, RB_GIVE_UP);
    return;
  }
  if (instance->program->makes_calls) {
    rb_limit_stack(&instance->stack);
  }
  if (atomic_fetch_sub_explicit(&instance->remaining, 1, memory_order_acq_rel) == 1) {
    rb_decide(instance, RB_BEGIN);
  }
  rb_event_wait(&instance->start, instance->undecided, instance->barrier.spin_nanoseconds);
  if (atomic_load(&instance->decision) == RB_BEGIN) {
    instance->program->run(&instance->frame, thread, instance->threads);
  }
}

static RbStatus rb_run_in_pool(RbInstance *instance) {
  atomic_store(&instance->decision, RB_UNDECIDED);
  atomic_store(&instance->remaining, instance->threads);
  instance->undecided = rb_event_count(&instance->start);
  const int32_t result = instance->pool.run(instance->pool.context, rb_task, instance, instance->threads);
  if (result || atomic_load(&instance->decision) != RB_BEGIN) {
    return rb_fail(RB_ERROR_THREAD,
                   "the application's thread pool did not run %" PRId32 " tasks for model '%s', it returned %" PRId32,
                   instance->threads, instance->program->name, result);
  }
  return RB_OK;
}

static RbStatus rb_run_parallel(RbInstance *instance) {
  const int32_t threads = instance->threads;
  const int32_t active = atomic_fetch_add_explicit(&rb_active_threads, threads, memory_order_relaxed) + threads;
  const int64_t spin = active <= instance->cpus ? RB_SPIN_NANOSECONDS : 0;
  RbStatus status = RB_OK;
  instance->barrier.spin_nanoseconds = spin ? RB_BARRIER_NANOSECONDS : 0;
  instance->idle_spin_nanoseconds = spin;
  if (instance->pool.run) {
    status = rb_run_in_pool(instance);
  } else {
    rb_run_own(instance, spin);
  }
  atomic_fetch_sub_explicit(&rb_active_threads, threads, memory_order_relaxed);
  return status;
}

/* Takes the instance for this call; what a thread of the parent process holds across fork() is nobody's here. */
static bool rb_acquire(RbInstance *instance, int32_t holder) {
  int32_t found = 0;
  if (atomic_compare_exchange_strong(&instance->holder, &found, holder)) {
    return true;
  }
  return found != holder && atomic_compare_exchange_strong(&instance->holder, &found, holder);
}

/* What became of a run that makes calls. */
static RbStatus rb_calls_status(RbInstance *instance) {
  const RbStatus status = atomic_load(&instance->stack.status);
  const char *name = instance->program->name;
  if (status == RB_ERROR_CALL_DEPTH) {
    return rb_fail(status,
                   "the functions of model '%s' call each other too deeply: the C stack of the calling thread (%zu "
                   "bytes free) or RELAYBUILD_MAX_CALL_DEPTH allows no more; run it in a thread with a larger stack",
                   name, atomic_load(&instance->stack.native_limit));
  }
  return status ? rb_fail(status, "out of memory: the functions of model '%s' call each other too deeply", name)
                : RB_OK;
}

static RbStatus rb_run_held(RbInstance *instance, int32_t process, const DLTensor *const *inputs,
                            DLTensor *const *outputs) {
  RbStatus status = rb_bind_tensors(instance, inputs, outputs);
  if (status) {
    return status;
  }
  if (instance->threads > 1 && !instance->pool.run && instance->workers_process != process) {
    status = rb_restart_workers(instance);
  }
  if (status) {
    return status;
  }
  const bool calls = instance->program->makes_calls;
  if (calls) {
    rb_reset_stack(&instance->stack, instance->pool.run ? 1 : instance->threads);
  }
  rb_regions_reset(instance->frame.regions);
  if (instance->threads == 1) {
    instance->program->run(&instance->frame, 0, 1);
  } else {
    status = rb_run_parallel(instance);
  }
  if (!status && calls) {
    status = rb_calls_status(instance);
  }
  return status ? status : rb_regions_status(instance->frame.regions);
}

RbStatus rb_instance_run(RbInstance *instance, const DLTensor *const *inputs, int32_t num_inputs,
                         DLTensor *const *outputs, int32_t num_outputs) {
  if (!instance) {
    return rb_fail(RB_ERROR_INVALID_ARGUMENT, "run: the instance is a null pointer");
  }
  RbStatus status = rb_check_counts(instance->program, inputs, num_inputs, outputs, num_outputs);
  if (status) {
    return status;
  }
  const int32_t process = instance->threads > 1 ? (int32_t)getpid() : 1;
  if (!rb_acquire(instance, process)) {
    return rb_fail(RB_ERROR_BUSY, "run: another thread is running this instance of model '%s'; give each its own",
                   instance->program->name);
  }
  status = rb_run_held(instance, process, inputs, outputs);
  atomic_store_explicit(&instance->holder, 0, memory_order_release);
  return status;
}

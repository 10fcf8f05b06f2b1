/* Runs the sample model in thread pools of this program: one that does what it promises, and several that do not. Exits
 * with 0 when every result and every message was right. */
#include "sample_call.h"

#include <pthread.h>

enum { THREADS = 4, RUNS = 50 };

typedef struct Job {
  void (*task)(void *, int32_t);
  void *argument;
  int32_t thread;
} Job;

static void *work(void *argument) {
  const Job *job = argument;
  job->task(job->argument, job->thread);
  return NULL;
}

static int calls;

/* Starts `started` threads for the tasks behind the first, which the calling thread runs where it may. */
static void run_some(Job *jobs, pthread_t *threads, int32_t started, void (*task)(void *, int32_t), void *argument) {
  ++calls;
  for (int32_t i = 0; i < started; ++i) {
    jobs[i] = (Job){task, argument, i};
    CHECK(pthread_create(&threads[i], NULL, work, &jobs[i]) == 0);
  }
}

static void join(const pthread_t *threads, int32_t count) {
  for (int32_t i = 0; i < count; ++i) {
    CHECK(pthread_join(threads[i], NULL) == 0);
  }
}

/* No task runs on the calling thread. */
static int32_t run_all(void *context, void (*task)(void *, int32_t), void *argument, int32_t count) {
  Job jobs[THREADS];
  pthread_t threads[THREADS];
  CHECK(context == &calls && count <= THREADS);
  run_some(jobs, threads, count, task, argument);
  join(threads, count);
  return 0;
}

static int32_t refuse(void *context, void (*task)(void *, int32_t), void *argument, int32_t count) {
  (void)context, (void)task, (void)argument, (void)count;
  return 7;
}

/* Has begun all tasks but one when it cannot go on. */
static int32_t give_up(void *context, void (*task)(void *, int32_t), void *argument, int32_t count) {
  Job jobs[THREADS];
  pthread_t threads[THREADS];
  (void)context;
  run_some(jobs, threads, count - 1, task, argument);
  task(argument, -1);
  join(threads, count - 1);
  return 11;
}

/* Says that all went well where nothing was done. */
static int32_t forget(void *context, void (*task)(void *, int32_t), void *argument, int32_t count) {
  (void)context, (void)task, (void)argument, (void)count;
  return 0;
}

static RbInstance *create(int32_t threads, RbThreadPool pool) {
  RbInstance *instance;
  const RbCreateOptions options = {sizeof options, threads, &pool};
  CHECK(sample_api()->create_with(&options, &instance) == RB_OK);
  return instance;
}

static void computes_in_the_pool(void) {
  for (int32_t threads = 1; threads <= THREADS; ++threads) {
    RbInstance *instance = create(threads, (RbThreadPool){&calls, THREADS, run_all});
    CHECK(sample_num_threads(instance) == threads);
    calls = 0;
    for (int i = 0; i < RUNS; ++i) {
      Call call;
      prepare(&call, i);
      CHECK(run(instance, &call) == RB_OK && is_right(&call));
    }
    CHECK(calls == (threads == 1 ? 0 : RUNS));
    sample_destroy(instance);
  }
  RbInstance *instance = create(0, (RbThreadPool){&calls, 3, run_all});
  CHECK(sample_num_threads(instance) == 3);
  sample_destroy(instance);
}

static void says_why_a_pool_failed(int32_t (*broken)(void *, void (*)(void *, int32_t), void *, int32_t),
                                   const char *message) {
  RbInstance *instance = create(THREADS, (RbThreadPool){&calls, THREADS, broken});
  for (int i = 0; i < RUNS; ++i) {
    Call call;
    prepare(&call, i);
    expect(run(instance, &call), RB_ERROR_THREAD, message);
  }
  sample_destroy(instance);
}

static void expect_options(const void *options, const char *message) {
  RbInstance *instance = (RbInstance *)&calls;
  expect(sample_api()->create_with(options, &instance), RB_ERROR_INVALID_ARGUMENT, message);
  CHECK(instance == NULL);
}

static void refuses_wrong_options(void) {
  const RbThreadPool no_run = {&calls, 2, NULL}, none = {&calls, 0, run_all}, two = {&calls, 2, run_all};
  RbCreateOptions options = {sizeof options, 0, &no_run};
  expect_options(&options, "the thread pool's function run is a null pointer");
  options.pool = &none;
  expect_options(&options, "the thread pool has 0 threads, expected 1 to 1024");
  options = (RbCreateOptions){sizeof options, 3, &two};
  expect_options(&options, "threads is 3, the thread pool has 2");
  options = (RbCreateOptions){4, 0, NULL};
  expect_options(&options, "create_with: the options have a struct_size of 4, expected 16");
  options = (RbCreateOptions){sizeof options, -1, NULL};
  expect_options(&options, "threads is -1, expected 1 to 1024, or 0 for the default");
  expect(sample_api()->create_with(NULL, NULL), RB_ERROR_INVALID_ARGUMENT,
         "create: the place for the instance is a null pointer");
}

/* Options as a later release may have them, and as one without pools would. */
static void reads_options_of_other_releases(void) {
  struct {
    RbCreateOptions known;
    void *more;
  } later = {{sizeof later, 2, NULL}, NULL};
  RbInstance *instance;
  CHECK(sample_api()->create_with(&later.known, &instance) == RB_OK && sample_num_threads(instance) == 2);
  sample_destroy(instance);
  later.more = &later;
  expect_options(&later, "create_with: the options ask for what a later release offers: compile the model again");
  const struct {
    uint32_t struct_size;
    int32_t threads;
    const char *behind;
  } earlier = {8, 2, "is not read"};
  CHECK(sample_api()->create_with((const RbCreateOptions *)(const void *)&earlier, &instance) == RB_OK);
  CHECK(sample_num_threads(instance) == 2);
  sample_destroy(instance);
  CHECK(sample_api()->create_with(NULL, &instance) == RB_OK);
  sample_destroy(instance);
}

int main(void) {
  CHECK(rb_has_create_with(sample_api()));
  RbModelApi earlier = *sample_api();
  earlier.struct_size = offsetof(RbModelApi, create_with);
  CHECK(!rb_has_create_with(&earlier));
  computes_in_the_pool();
  says_why_a_pool_failed(refuse, "the application's thread pool did not run 4 tasks for model 'sample', it returned 7");
  says_why_a_pool_failed(give_up,
                         "the application's thread pool did not run 4 tasks for model 'sample', it returned 11");
  says_why_a_pool_failed(forget, "the application's thread pool did not run 4 tasks for model 'sample', it returned 0");
  refuses_wrong_options();
  reads_options_of_other_releases();
  return 0;
}

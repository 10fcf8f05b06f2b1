/* Tells where its input lies, and waits until as many calls as its input says are inside the library at once. */
#include "relaybuild/program.h"

#include <stdatomic.h>
#include <time.h>

static _Atomic int32_t inside;

/* The number of calls seen inside, at most `wanted`; gives up after ten seconds. */
static int32_t meet(int32_t wanted) {
  const time_t end = time(NULL) + 10;
  atomic_fetch_add(&inside, 1);
  while (atomic_load(&inside) < wanted && time(NULL) < end) {
    nanosleep(&(struct timespec){0, 100000}, NULL);
  }
  return atomic_load(&inside);
}

static void run(const RbFrame *frame, int32_t thread, int32_t threads) {
  const int32_t *wanted = frame->inputs[0];
  int64_t *found = frame->outputs[0];
  (void)thread;
  (void)threads;
  found[0] = (int64_t)(intptr_t)wanted;
  found[1] = meet(wanted[0]);
}

static const int64_t shape[] = {2};
static const RbTensorInfo input = {"wanted", 1, shape, {kDLInt, 32, 1}};
static const RbTensorInfo output = {"found", 1, shape, {kDLInt, 64, 1}};

static const RbProgram program = {.abi_version = RELAYBUILD_ABI_VERSION,
                                  .name = "probe",
                                  .target = "c",
                                  .cpu_features = "",
                                  .num_inputs = 1,
                                  .num_outputs = 1,
                                  .inputs = &input,
                                  .outputs = &output,
                                  .max_threads = 1,
                                  .metadata = "{}",
                                  .run = run};

RB_DEFINE_MODEL(probe, program);
RB_DEFINE_ENTRY(probe);

/* A program with one input and one output of a dtype given on the command line; the output is the input. */
#include "relaybuild/program.h"

#include <string.h>

#ifndef NDIM
#define NDIM 1
#endif

enum { BYTES = (NDIM ? 5 : 1) * BITS / 8 };

static void run(const RbFrame *frame, int32_t thread, int32_t threads) {
  (void)threads;
  if (thread == 0) {
    memcpy(frame->outputs[0], frame->inputs[0], BYTES);
  }
}

static const int64_t shape[] = {5};
static const RbTensorInfo input = {"x", NDIM, shape, {CODE, BITS, 1}};
static const RbTensorInfo output = {"y", NDIM, shape, {CODE, BITS, 1}};

static const RbProgram program = {.abi_version = RELAYBUILD_ABI_VERSION,
                                  .name = "dtypes",
                                  .target = "c",
                                  .cpu_features = "",
                                  .num_inputs = 1,
                                  .num_outputs = 1,
                                  .inputs = &input,
                                  .outputs = &output,
                                  .metadata = "{}",
                                  .run = run};

RB_DEFINE_ENTRY(program);

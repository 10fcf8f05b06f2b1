/* A hand-written program in the form that generated ones have: three rounds of scaling by the weights and shifting by
 * one over the arena, then y = arena + bias and total = row sums of y, with a barrier between what depends. */
#include "relaybuild/program.h"

#ifndef MODEL
#define MODEL sample
#endif
#ifndef CPU_FEATURES
#define CPU_FEATURES ""
#endif
#ifndef MAX_THREADS
#define MAX_THREADS 0
#endif
#ifndef DEFAULT_THREADS
#define DEFAULT_THREADS 0
#endif
#ifndef ABI_VERSION
#define ABI_VERSION RELAYBUILD_ABI_VERSION
#endif
#ifndef ARENA_BYTES
#define ARENA_BYTES (2 * COUNT * sizeof(float))
#endif
#ifndef SCALE
#define SCALE 0.5f
#endif

enum { ROWS = 2, COLUMNS = 64, COUNT = ROWS * COLUMNS, ROUNDS = 3 };

static const _Alignas(64) float weights[2] = {SCALE, 2.0f};

static void scale_and_shift(const float *weight, const float *in, float *out, int32_t thread, int32_t threads) {
  for (int32_t i = thread; i < COUNT; i += threads) {
    out[i] = weight[i % 2] * in[(i + 1) % COUNT];
  }
}

static void add_bias(const float *in, const float *bias, float *out, int32_t thread, int32_t threads) {
  for (int32_t i = thread; i < COUNT; i += threads) {
    out[i] = in[i] + bias[i % COLUMNS];
  }
}

static void sum_rows(const float *in, float *scratch, float *out, int32_t thread, int32_t threads) {
  for (int32_t row = thread; row < ROWS; row += threads) {
    scratch[0] = 0;
    for (int32_t i = 0; i < COLUMNS; ++i) {
      scratch[0] += in[row * COLUMNS + i];
    }
    out[row] = scratch[0];
  }
}

static void run(const RbFrame *frame, int32_t thread, int32_t threads) {
  const float *weight = (const float *)(const void *)frame->weights;
  float *scratch = (float *)(void *)(frame->scratch + (size_t)thread * frame->scratch_stride);
  float *halves = (float *)(void *)frame->arena;
  const float *in = frame->inputs[0];
  for (int32_t round = 0; round < ROUNDS; ++round) {
    float *out = halves + round % 2 * COUNT;
    scale_and_shift(weight, in, out, thread, threads);
    rb_barrier(frame->barrier, threads);
    in = out;
  }
  add_bias(in, frame->inputs[1], frame->outputs[0], thread, threads);
  rb_barrier(frame->barrier, threads);
  sum_rows(frame->outputs[0], scratch, frame->outputs[1], thread, threads);
}

static const int64_t matrix[] = {ROWS, COLUMNS}, vector[] = {COLUMNS}, rows[] = {ROWS};
static const RbTensorInfo inputs[] = {{"x", 2, matrix, {kDLFloat, 32, 1}}, {"the bias", 1, vector, {kDLFloat, 32, 1}}};
static const RbTensorInfo outputs[] = {{"y", 2, matrix, {kDLFloat, 32, 1}}, {"total", 1, rows, {kDLFloat, 32, 1}}};

#define QUOTE(text) #text
#define NAME_OF(model) QUOTE(model)

static const RbProgram program = {
    .abi_version = ABI_VERSION,
    .name = NAME_OF(MODEL),
    .target = "c",
    .cpu_features = CPU_FEATURES,
    .num_inputs = 2,
    .num_outputs = 2,
    .inputs = inputs,
    .outputs = outputs,
    .arena_bytes = ARENA_BYTES,
    .scratch_bytes = sizeof(float),
    .weight_bytes = sizeof weights,
    .metadata = "{\"kernels\": [\"scale_and_shift\", \"add_bias\", \"sum_rows\"]}",
    .default_threads = DEFAULT_THREADS,
    .max_threads = MAX_THREADS,
    .weights = (const unsigned char *)weights,
    .run = run,
};

#define DEFINE(model) RB_DEFINE_MODEL(model, program)
DEFINE(MODEL);
#ifndef STATIC_MODEL
#define ENTRY(model) RB_DEFINE_ENTRY(model)
ENTRY(MODEL);
RB_DEFINE_MAIN(program);
#endif

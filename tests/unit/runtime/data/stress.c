/* Hammers the sample model through its C interface; exits with 0 when every result and every refusal was right. */
#include "sample_call.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef RUNS
#define RUNS 200
#endif

static void run_many(int32_t threads, int runs) {
  RbInstance *instance;
  CHECK(sample_create(threads, &instance) == RB_OK);
  CHECK(sample_num_threads(instance) == threads);
  for (int i = 0; i < runs; ++i) {
    Call call;
    prepare(&call, i);
    CHECK(run(instance, &call) == RB_OK);
    CHECK(is_right(&call));
  }
  sample_destroy(instance);
}

static void *own_instance(void *threads) {
  run_many(*(int32_t *)threads, RUNS / 2);
  return NULL;
}

static void *shared_instance(void *instance) {
  for (int i = 0; i < RUNS; ++i) {
    Call call;
    prepare(&call, i);
    const RbStatus status = run(instance, &call);
    CHECK(status == RB_ERROR_BUSY || (status == RB_OK && is_right(&call)));
  }
  return NULL;
}

static void in_two_threads(void *(*body)(void *), void *argument) {
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(pthread_create(&threads[i], NULL, body, argument) == 0);
  }
  for (int i = 0; i < 2; ++i) {
    pthread_join(threads[i], NULL);
  }
}

static void in_child(RbInstance *instance, int runs) {
  const pid_t child = fork();
  if (child == 0) {
    Call call;
    for (int i = 0; i < runs; ++i) {
      prepare(&call, i);
      CHECK(run(instance, &call) == RB_OK && is_right(&call));
    }
    sample_destroy(instance);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void survives_fork(int32_t threads) {
  RbInstance *instance;
  Call call;
  CHECK(sample_create(threads, &instance) == RB_OK);
  in_child(instance, 3);
  prepare(&call, 1);
  CHECK(run(instance, &call) == RB_OK && is_right(&call));
  in_child(instance, 0);
  in_child(instance, 3);
  sample_destroy(instance);
}

#define EXPECT_REFUSAL(mutation, message)                                                                              \
  do {                                                                                                                 \
    prepare(&call, 0);                                                                                                 \
    mutation;                                                                                                          \
    expect(run(instance, &call), RB_ERROR_INVALID_TENSOR, message);                                                    \
  } while (0)

static void refuses_wrong_tensors(void) {
  static int64_t shape[] = {2, 65}, ones[] = {1, 1}, columns_first[] = {1, 2}, large[40];
  RbInstance *instance;
  Call call;
  CHECK(sample_create(1, &instance) == RB_OK);
  EXPECT_REFUSAL(call.inputs[1] = NULL, "input 'the bias' is a null pointer");
  EXPECT_REFUSAL(call.outputs[1] = NULL, "output 'total' is a null pointer");
  EXPECT_REFUSAL(call.tensors[0].data = NULL, "the data of input 'x' is a null pointer");
  EXPECT_REFUSAL(call.tensors[0].shape = NULL, "input 'x' has 2 dimensions and a null pointer as shape");
  EXPECT_REFUSAL(call.tensors[0].ndim = -1, "input 'x' has -1 dimensions and a shape");
  EXPECT_REFUSAL(call.tensors[0].shape = shape, "input 'x' has shape (2, 65), expected (2, 64)");
  EXPECT_REFUSAL((call.tensors[0].shape = ones, call.tensors[0].ndim = 1),
                 "input 'x' has shape (1,), expected (2, 64)");
  EXPECT_REFUSAL(call.tensors[1].ndim = 0, "input 'the bias' has shape (), expected (64,)");
  EXPECT_REFUSAL(call.tensors[0].dtype.bits = 64, "input 'x' has dtype float64, expected float32");
  EXPECT_REFUSAL(call.tensors[0].dtype.lanes = 4, "input 'x' has dtype float32x4, expected float32");
  EXPECT_REFUSAL(call.tensors[2].dtype.code = kDLInt, "output 'y' has dtype int32, expected float32");
  EXPECT_REFUSAL(call.tensors[0].dtype.code = 99, "input 'x' has dtype unknown32, expected float32");
  EXPECT_REFUSAL(call.tensors[0].device.device_type = kDLCUDA,
                 "input 'x' is on a device of DLPack type 2, expected the CPU (1)");
  EXPECT_REFUSAL(call.tensors[0].strides = columns_first,
                 "input 'x' has strides (1, 2), expected a row-major tensor without gaps");
  EXPECT_REFUSAL(call.tensors[0].byte_offset = 2, "the data of input 'x' is not aligned to its element of 4 bytes");
  EXPECT_REFUSAL(call.tensors[2].data = call.x + 4,
                 "output 'y' shares memory with input 'x', expected memory of its own");
  EXPECT_REFUSAL(call.tensors[3].data = call.y + SAMPLE_OUTPUT_Y_SIZE - 1,
                 "output 'total' shares memory with output 'y', expected memory of its own");
  prepare(&call, 0);
  call.tensors[0].shape = large;
  call.tensors[0].ndim = 40;
  memset(large, 0x7f, sizeof large);
  CHECK(run(instance, &call) == RB_ERROR_INVALID_TENSOR);
  sample_destroy(instance);
}

static void accepts_what_is_compact(void) {
  static int64_t strides[] = {64, 1}, vector_strides[] = {1};
  static float memory[SAMPLE_INPUT_X_SIZE + 1];
  RbInstance *instance;
  Call call;
  CHECK(sample_create(2, &instance) == RB_OK);
  prepare(&call, 3);
  call.tensors[0].strides = strides;
  call.tensors[1].strides = vector_strides;
  memcpy(memory + 1, call.x, sizeof call.x);
  call.tensors[0].data = memory;
  call.tensors[0].byte_offset = sizeof(float);
  CHECK(run(instance, &call) == RB_OK && is_right(&call));
  sample_destroy(instance);
}

static void refuses_wrong_calls(void) {
  RbInstance *instance;
  Call call;
  prepare(&call, 0);
  expect(sample_create(1, NULL), RB_ERROR_INVALID_ARGUMENT, "create: the place for the instance is a null pointer");
  expect(sample_create(-1, &instance), RB_ERROR_INVALID_ARGUMENT,
         "threads is -1, expected 1 to 1024, or 0 for the default");
  CHECK(instance == NULL);
  expect(run(NULL, &call), RB_ERROR_INVALID_ARGUMENT, "run: the instance is a null pointer");
  CHECK(sample_create(1, &instance) == RB_OK);
  expect(sample_run(instance, call.inputs, 1, call.outputs, 2), RB_ERROR_INVALID_ARGUMENT,
         "run: got 1 inputs and 2 outputs, model 'sample' has 2 and 2");
  expect(sample_run(instance, NULL, 2, call.outputs, 2), RB_ERROR_INVALID_ARGUMENT,
         "run: the list of inputs is a null pointer");
  sample_destroy(instance);
  sample_destroy(NULL);
}

static void chooses_threads(void) {
  RbInstance *instance;
  setenv("RELAYBUILD_NUM_THREADS", "3", 1);
  CHECK(sample_create(0, &instance) == RB_OK && sample_num_threads(instance) == 3);
  sample_destroy(instance);
  setenv("RELAYBUILD_NUM_THREADS", "many", 1);
  expect(sample_create(0, &instance), RB_ERROR_INVALID_ARGUMENT,
         "RELAYBUILD_NUM_THREADS is 'many', expected a whole number from 1 to 1024");
  CHECK(sample_create(2, &instance) == RB_OK && sample_num_threads(instance) == 2);
  sample_destroy(instance);
  unsetenv("RELAYBUILD_NUM_THREADS");
}

int main(int argc, char **argv) {
  RbInstance *shared;
  int32_t two = 2;
  CHECK(strcmp(sample_last_error(), "") == 0);
  refuses_wrong_calls();
  refuses_wrong_tensors();
  accepts_what_is_compact();
  chooses_threads();
  for (int32_t threads = 1; threads <= 4; ++threads) {
    run_many(threads, RUNS);
  }
  for (int i = 0; i < 20; ++i) {
    run_many(3, 1);
  }
  in_two_threads(own_instance, &two);
  CHECK(sample_create(2, &shared) == RB_OK);
  in_two_threads(shared_instance, shared);
  sample_destroy(shared);
  if (argc < 2 || strcmp(argv[1], "--no-fork")) {
    survives_fork(1);
    survives_fork(3);
  }
  return 0;
}

/* Calls the packed function "main" of the library in argv[1] from many threads at once, after a failed call, in a
 * forked child, and unloads the library; argv[2] is the number of calls of each thread. */
#include "relaybuild/packed.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, ROWS = 2, COLUMNS = 64, COUNT = ROWS * COLUMNS };

static RbPackedFunction run_main;
static RbLastError last_error;
static int calls;

static int64_t matrix[] = {ROWS, COLUMNS}, vector[] = {COLUMNS}, rows[] = {ROWS};

/* A tensor inside of an object, as apache-tvm-ffi hands it over. */
typedef struct Object {
  unsigned char header[RB_OBJECT_HEADER_BYTES];
  DLTensor tensor;
} Object;

static DLTensor tensor(float *data, int32_t ndim, int64_t *shape) {
  return (DLTensor){data, {kDLCPU, 0}, ndim, {kDLFloat, 32, 1}, shape, NULL, 0};
}

/* One call with `seed` in every input; whether the results are right. */
static int call(float seed) {
  float x[COUNT], bias[COLUMNS], y[COUNT] = {0}, total[ROWS] = {0};
  for (int i = 0; i < COUNT; ++i) {
    x[i] = seed;
    bias[i % COLUMNS] = 0;
  }
  DLTensor tensors[] = {tensor(x, 2, matrix), tensor(bias, 1, vector), tensor(y, 2, matrix)};
  Object object = {{0}, tensor(total, 1, rows)};
  RbValue values[4] = {{0}};
  for (int i = 0; i < 3; ++i) {
    values[i].type = RB_VALUE_TENSOR;
    values[i].u.as_pointer = &tensors[i];
  }
  values[3].type = RB_VALUE_TENSOR_OBJECT;
  values[3].u.as_pointer = &object;
  RbValue result = {0};
  /* three rounds scale each element by the weights 0.5 and 2 in turn, and move it on: by 0.5 * 2 * 0.5, or 2 * 0.5 * 2
   */
  return run_main(NULL, values, 4, &result) == 0 && y[0] + y[1] == 2.5f * seed && total[0] == 80 * seed &&
         total[1] == 80 * seed;
}

static void *repeat(void *argument) {
  const float seed = *(const float *)argument;
  for (int i = 0; i < calls; ++i) {
    if (!call(seed)) {
      return "wrong results";
    }
  }
  return NULL;
}

static int refuses(RbValue *values, int32_t count, const char *reason) {
  RbValue result = {0};
  return run_main(NULL, values, count, &result) == -1 && strstr(last_error(), reason);
}

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, last_error());
  return 1;
}

int main(int argc, char **argv) {
  void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  if (!library) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  calls = atoi(argv[2]);
  void *found = dlsym(library, "__tvm_ffi_main");
  memcpy(&run_main, &found, sizeof found);
  found = dlsym(library, RELAYBUILD_LAST_ERROR_ENTRY);
  memcpy(&last_error, &found, sizeof found);

  RbValue values[4] = {{RB_VALUE_INT, 0, {1}}};
  if (!refuses(values, 3, "got 3 arguments, function 'main' takes 4: 2 inputs, then 2 outputs to write") ||
      !refuses(NULL, 4, "the arguments of function 'main' are a null pointer") ||
      !refuses(values, 4, "input 'x' is an integer, expected a tensor")) {
    return fail("a wrong call");
  }
  values[0].type = RB_VALUE_TENSOR;
  values[0].u.as_pointer = NULL;
  values[1].type = 99;
  if (!refuses(values, 4, "input 'the bias' is of type 99, expected a tensor")) {
    return fail("a value of unknown type");
  }
  values[1] = values[2] = values[3] = values[0];
  if (!refuses(values, 4, "input 'x' is a null pointer")) {
    return fail("a null pointer");
  }

  pthread_t threads[THREADS];
  float seeds[THREADS];
  for (int i = 0; i < THREADS; ++i) {
    seeds[i] = (float)(i + 1);
    pthread_create(&threads[i], NULL, repeat, &seeds[i]);
  }
#ifndef NO_FORK
  /* while calls are inside */
  const pid_t child = fork();
  if (child == 0) {
    _exit(!call(11));
  }
  int status = 1;
  if (waitpid(child, &status, 0) != child || status) {
    return fail("in the child");
  }
#endif
  for (int i = 0; i < THREADS; ++i) {
    void *problem = NULL;
    pthread_join(threads[i], &problem);
    if (problem) {
      return fail(problem);
    }
  }
  return dlclose(library) ? fail("dlclose") : 0;
}

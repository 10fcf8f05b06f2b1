/* A model and a packed function, each with one input and one output of a dtype and extent given on the command line;
 * the output is the input. */
#include "relaybuild/program.h"

#include <string.h>

#ifndef NDIM
#define NDIM 1
#endif
#ifndef EXTENT
#define EXTENT 5
#endif

#define BYTES ((size_t)(NDIM ? EXTENT : 1) * (BITS) / 8)

static void run(const RbFrame *frame, int32_t thread, int32_t threads) {
  (void)threads;
  if (thread == 0 && BYTES) {
    memcpy(frame->outputs[0], frame->inputs[0], BYTES);
  }
}

static const int64_t shape[] = {EXTENT};
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

RB_DEFINE_MODEL(dtypes, program);
RB_DEFINE_ENTRY(dtypes);
RB_DEFINE_MAIN(program);

static const RbSignature signature = {"copy", 1, 1, &input, &output};

RB_EXPORT int32_t __tvm_ffi_copy(void *self, const RbValue *args, int32_t num_args, RbValue *result);
int32_t __tvm_ffi_copy(void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  void *data[2];
  (void)self;
  (void)result;
  if (rb_unpack(&signature, args, num_args, data)) {
    return -1;
  }
  if (BYTES) {
    memcpy(data[1], data[0], BYTES);
  }
  return 0;
}

RB_EXPORT const RbLibrary *relaybuild_library_v1(void);
const RbLibrary *relaybuild_library_v1(void) {
  static const RbRegion region = {&signature, "copier", __tvm_ffi_copy, NULL, NULL, NULL};
  static const RbRegion *const regions[] = {&region};
  static const int32_t region_modules[] = {1}, parents[] = {-1, 0};
  static const char *const keys[] = {"relaybuild", "c"};
  static const RbLibrary library = {
      RELAYBUILD_ABI_VERSION, (uint32_t)sizeof(RbLibrary), 1, 2, regions, region_modules, keys, parents};
  return &library;
}

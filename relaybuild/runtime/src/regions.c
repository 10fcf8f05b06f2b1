/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of functions that other backends compute, out of a program, and what an instance keeps for them. It knows
 * neither backends nor what the functions compute. */
#include "relaybuild/checks.h"
#include "relaybuild/program.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

/* One function: its arguments, whose data alone change from call to call. */
typedef struct RbRegionState {
  const RbRegion *region;
  void *self;
  DLTensor *tensors;
  RbValue *values;
} RbRegionState;

struct RbRegions {
  int32_t count;
  _Atomic RbStatus status;
  char message[1024]; /* why the last run failed: the thread that called the function may not be the one that asks */
  RbRegionState states[];
};

static void rb_fill_tensors(RbRegionState *state) {
  const RbSignature *signature = state->region->signature;
  for (int32_t i = 0; i < signature->num_inputs + signature->num_outputs; ++i) {
    const int32_t output = i - signature->num_inputs;
    state->tensors[i] = rb_tensor(output < 0 ? &signature->inputs[i] : &signature->outputs[output], NULL);
    state->values[i].type = RB_VALUE_TENSOR;
    state->values[i].u.as_pointer = &state->tensors[i];
  }
}

static RbStatus rb_open_region(const RbRegion *region, RbRegionState *state) {
  const size_t count = (size_t)region->signature->num_inputs + (size_t)region->signature->num_outputs;
  state->region = region;
  state->tensors = calloc(count + 1, sizeof *state->tensors);
  state->values = calloc(count + 1, sizeof *state->values);
  if (!state->tensors || !state->values) {
    rb_raise("out of memory: region '%s' has %zu tensors", region->signature->name, count);
    return RB_ERROR_OUT_OF_MEMORY;
  }
  rb_fill_tensors(state);
  return region->create && region->create(region, &state->self) ? RB_ERROR_REGION : RB_OK;
}

RbStatus rb_regions_create(const RbProgram *program, struct RbRegions **out) {
  if (!program->num_regions) {
    return RB_OK;
  }
  struct RbRegions *regions = calloc(1, sizeof *regions + (size_t)program->num_regions * sizeof *regions->states);
  if (!regions) {
    rb_raise("out of memory: model '%s' has %d regions", program->name, (int)program->num_regions);
    return RB_ERROR_OUT_OF_MEMORY;
  }
  RbStatus status = RB_OK;
  for (; regions->count < program->num_regions && !status; ++regions->count) {
    status = rb_open_region(program->regions[regions->count], &regions->states[regions->count]);
  }
  *out = regions;
  return status;
}

void rb_regions_destroy(struct RbRegions *regions) {
  for (int32_t i = 0; regions && i < regions->count; ++i) {
    RbRegionState *state = &regions->states[i];
    if (state->self && state->region->destroy) {
      state->region->destroy(state->self);
    }
    free(state->values);
    free(state->tensors);
  }
  free(regions);
}

void rb_regions_reset(struct RbRegions *regions) {
  if (regions) {
    atomic_store_explicit(&regions->status, RB_OK, memory_order_relaxed);
  }
}

static RbStatus rb_status_of(const struct RbRegions *regions) {
  return atomic_load_explicit(&regions->status, memory_order_relaxed);
}

RbStatus rb_regions_status(const struct RbRegions *regions) {
  const RbStatus status = regions ? rb_status_of(regions) : RB_OK;
  return status ? rb_fail(status, "%s", regions->message) : RB_OK;
}

static RbStatus rb_call_region(RbRegionState *state, const void *const *inputs, void *const *outputs, int32_t threads) {
  const RbSignature *signature = state->region->signature;
  for (int32_t i = 0; i < signature->num_inputs; ++i) {
    state->tensors[i].data = (void *)inputs[i];
  }
  for (int32_t i = 0; i < signature->num_outputs; ++i) {
    state->tensors[signature->num_inputs + i].data = outputs[i];
  }
  RbValue result = {RB_VALUE_NONE, 0, {0}};
  const int32_t count = signature->num_inputs + signature->num_outputs;
  return rb_invoke(state->region, state->self, state->values, count, &result, threads) ? RB_ERROR_REGION : RB_OK;
}

RbStatus rb_region(const RbFrame *frame, int32_t region, const void *const *inputs, void *const *outputs,
                   int32_t thread, int32_t threads) {
  struct RbRegions *regions = frame->regions;
  rb_barrier(frame->barrier, threads);
  if (thread == 0) {
    const RbStatus status = rb_call_region(&regions->states[region], inputs, outputs, threads);
    if (status) {
      snprintf(regions->message, sizeof regions->message, "%s", rb_last_error());
    }
    atomic_store_explicit(&regions->status, status, memory_order_relaxed);
  }
  rb_barrier_parked(frame->barrier, threads);
  return rb_status_of(regions);
}

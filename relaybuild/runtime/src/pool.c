/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed function of a whole model: leases an instance to each call, and makes one when all are in use. Compiled
 * into every shared model library; knows instances by their interface only. */
#include "relaybuild/checks.h"
#include "relaybuild/program.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

/* An instance, and room for the arguments of a call. Members are added in front and stay until the library goes, so
 * that a look through the list needs no lock: a lock that another thread holds during fork() would stay locked in the
 * child. For the same reason a member that was leased then is never used in the child. */
struct RbPoolMember {
  struct RbPoolMember *next;
  RbInstance *instance;
  atomic_bool is_leased;
  DLTensor *tensors[]; /* inputs, then outputs */
};

static struct RbPoolMember *rb_pool_find(RbPool *pool) {
  struct RbPoolMember *member = atomic_load(&pool->first);
  while (member && atomic_exchange(&member->is_leased, true)) {
    member = member->next;
  }
  return member;
}

static RbStatus rb_pool_add(RbPool *pool, struct RbPoolMember **out) {
  const RbProgram *program = pool->program;
  const size_t count = (size_t)program->num_inputs + (size_t)program->num_outputs;
  struct RbPoolMember *member = calloc(1, sizeof *member + count * sizeof *member->tensors);
  if (!member) {
    return rb_fail(RB_ERROR_OUT_OF_MEMORY, "out of memory for %zu arguments of model '%s'", count, program->name);
  }
  atomic_init(&member->is_leased, true);
  const RbStatus status = rb_instance_create(program, 0, &member->instance);
  if (status) {
    free(member);
    return status;
  }
  member->next = atomic_load(&pool->first);
  while (!atomic_compare_exchange_weak(&pool->first, &member->next, member)) {
  }
  *out = member;
  return RB_OK;
}

static RbStatus rb_run_member(const RbProgram *program, struct RbPoolMember *member, const RbValue *args) {
  const int32_t inputs = program->num_inputs, outputs = program->num_outputs;
  DLTensor **tensors = member->tensors;
  RbStatus status = RB_OK;
  for (int32_t i = 0; i < inputs && !status; ++i) {
    status = rb_tensor_argument("input", &program->inputs[i], &args[i], &tensors[i]);
  }
  for (int32_t i = 0; i < outputs && !status; ++i) {
    status = rb_tensor_argument("output", &program->outputs[i], &args[inputs + i], &tensors[inputs + i]);
  }
  return status
             ? status
             : rb_instance_run(member->instance, (const DLTensor *const *)tensors, inputs, tensors + inputs, outputs);
}

static RbStatus rb_pool_run(RbPool *pool, const RbValue *args, int32_t num_args) {
  const RbProgram *program = pool->program;
  RbStatus status = rb_check_arguments("main", program->num_inputs, program->num_outputs, args, num_args);
  if (status) {
    return status;
  }
  struct RbPoolMember *member = rb_pool_find(pool);
  if (!member) {
    status = rb_pool_add(pool, &member);
  }
  if (status) {
    return status;
  }
  status = rb_run_member(program, member, args);
  atomic_store(&member->is_leased, false);
  return status;
}

int32_t rb_pool_call(RbPool *pool, const RbValue *args, int32_t num_args) {
  const RbStatus status = rb_pool_run(pool, args, num_args);
  return status ? rb_raise_last(status) : 0;
}

void rb_pool_free(RbPool *pool) {
  for (struct RbPoolMember *member = atomic_exchange(&pool->first, NULL), *next; member; member = next) {
    next = member->next;
    if (!atomic_load(&member->is_leased)) {
      rb_instance_destroy(member->instance);
      free(member);
    }
  }
}

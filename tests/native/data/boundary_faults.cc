/* Lets memory and threads run out at every point of a model's calls, one after the other: each either succeeds or says
 * what is missing, and nothing stays behind. The model is linked; the functions that fail are in faults.c. */
#include <functional>
#include <thread>

#include <dlfcn.h>

#include "boundary.h"
#include "faults.h"
#include "model.h"
#include "relaybuild/model.hpp"

extern "C" int32_t __tvm_ffi_main(void *self, const RbValue *args, int32_t num_args, RbValue *result);

namespace {

constexpr long kMostPoints = 5000;
constexpr int32_t kThreads = 3;
constexpr int kRounds = 3;

Call expected, call;

/* The status of a call in which something may be missing. */
using Scenario = std::function<RbStatus()>;

RbStatus RunAndDestroy(RbStatus created, RbInstance *instance) {
  CHECK(!created == (instance != nullptr));
  RbStatus status = created;
  RbInstance *none = nullptr;
  CHECK(created || model_create(-1, &none)); // the last error is another one
  for (int run = 0; run < 2 && !status; ++run) {
    status = call_run(&call, model_api(), instance);
    CHECK(status || same_outputs(&call, &expected));
  }
  // whichever thread the region ran on, the one that asks is told
  CHECK(status != RB_ERROR_REGION || std::strncmp(model_last_error(), "region '", 8) == 0);
  model_destroy(instance);
  return status;
}

/* Starts threads for all tasks, and gives up where one cannot be started. */
int32_t RunElsewhere(void *, void (*task)(void *argument, int32_t thread), void *argument, int32_t count) {
  std::vector<std::thread> threads;
  int32_t failed = 0;
  try {
    for (int32_t i = 0; i < count; ++i) {
      threads.emplace_back(task, argument, i);
    }
  } catch (const std::exception &) {
    task(argument, -1);
    failed = 1;
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
  return failed;
}

RbStatus Create(int32_t threads) {
  RbInstance *instance = nullptr;
  const RbStatus created = model_create(threads, &instance);
  return RunAndDestroy(created, instance);
}

RbStatus CreateWith(const RbThreadPool *pool) {
  RbInstance *instance = nullptr;
  const RbCreateOptions options{sizeof options, kThreads, pool};
  const RbStatus created = model_api()->create_with(&options, &instance);
  return RunAndDestroy(created, instance);
}

RbStatus Cpp(bool throws) {
  const auto as_status = [](const relaybuild::Status &status) { return static_cast<RbStatus>(status.code()); };
  std::vector<relaybuild::ConstTensor> inputs;
  try {
    inputs.assign(call.tensors, call.tensors + call.inputs);
    if (!throws) {
      auto made = relaybuild::Instance::Make(model_api(), {kThreads, nullptr});
      return as_status(made.ok() ? made->TryRun(inputs) : made.status());
    }
    relaybuild::Instance instance(model_api(), {kThreads, nullptr});
    instance.Run(inputs);
    CHECK(!std::memcmp(instance.OutputTensor(0).data, expected.tensors[call.inputs].data, call.bytes[call.inputs]));
  } catch (const relaybuild::Error &error) {
    return static_cast<RbStatus>(error.code());
  } catch (const std::bad_alloc &) {
    return RB_ERROR_OUT_OF_MEMORY;
  }
  return RB_OK;
}

RbStatus MakePool() {
  try {
    const auto pool = relaybuild::ThreadPool::Make(kThreads);
    return static_cast<RbStatus>(pool.status().code());
  } catch (const std::bad_alloc &) {
    return RB_ERROR_OUT_OF_MEMORY;
  }
}

bool IsExpected(RbStatus status) {
  return status == RB_OK || status == RB_ERROR_OUT_OF_MEMORY || status == RB_ERROR_THREAD || status == RB_ERROR_REGION;
}

/* Runs it with something missing; false where nothing was. */
bool RunsShort(const Scenario &scenario, int kind, long point, int for_good) {
  fault_arm(kind, point, for_good);
  const RbStatus status = scenario();
  const bool fired = fault_disarm(kind) != 0;
  dlerror();
  dlerror(); // the C library's own sentence, which it keeps
  CHECK(IsExpected(status) && (fired || status == RB_OK));
  return fired;
}

/* How much stays behind of several rounds, after as many in which what is made once and kept has come. */
long Growth(const Scenario &scenario, int kind, long point, int for_good) {
  long before = 0;
  for (int round = 0; round < 2 * kRounds; ++round) {
    before = round == kRounds ? fault_live() : before;
    RunsShort(scenario, kind, point, for_good);
  }
  return fault_live() - before;
}

/* Goes through all points. Who keeps a block for the next time may have one more or less than before. */
void FailsEverywhere(const char *name, const Scenario &scenario, int kind) {
  for (int for_good = 0; for_good < 2; ++for_good) {
    long point = 1;
    while (RunsShort(scenario, kind, point, for_good)) {
      const long growth = Growth(scenario, kind, point, for_good);
      if (growth >= kRounds) {
        std::fprintf(stderr, "%s: %ld blocks stay behind when call %ld fails\n", name, growth, point);
        std::exit(1);
      }
      CHECK(++point < kMostPoints);
    }
    std::printf("%s: %ld points\n", name, point - 1);
    CHECK(scenario() == RB_OK);
  }
}

} // namespace

int main() {
  call_open(&expected, model_describe(), 1);
  call_open(&call, model_describe(), 1);
  // the very first calls, in which the model makes what it keeps
  const Scenario packed = [] { return call_packed(&call, __tvm_ffi_main) ? RB_ERROR_OUT_OF_MEMORY : RB_OK; };
  long point = 1;
  while (RunsShort(packed, FAULT_MEMORY, point, 0)) {
    ++point;
  }
  std::printf("packed: %ld points\n", point - 1);
  RbInstance *instance = nullptr;
  CHECK(model_create(1, &instance) == RB_OK && call_run(&expected, model_api(), instance) == RB_OK);
  model_destroy(instance);
  FailsEverywhere("create", [] { return Create(1); }, FAULT_MEMORY);
  FailsEverywhere("create with threads", [] { return Create(kThreads); }, FAULT_MEMORY);
  FailsEverywhere("threads", [] { return Create(kThreads); }, FAULT_THREAD);
  FailsEverywhere("pool", MakePool, FAULT_THREAD);
  FailsEverywhere("memory of a pool", MakePool, FAULT_MEMORY);
  {
    relaybuild::ThreadPool pool(kThreads);
    FailsEverywhere("create_with", [&pool] { return CreateWith(pool); }, FAULT_MEMORY);
  }
  const RbThreadPool elsewhere{nullptr, kThreads, RunElsewhere};
  FailsEverywhere("threads elsewhere", [&] { return CreateWith(&elsewhere); }, FAULT_MEMORY);
  FailsEverywhere("no threads elsewhere", [&] { return CreateWith(&elsewhere); }, FAULT_THREAD);
  FailsEverywhere("C++ with exceptions", [] { return Cpp(true); }, FAULT_MEMORY);
  FailsEverywhere("C++ with results", [] { return Cpp(false); }, FAULT_MEMORY);
  FailsEverywhere("threads from C++", [] { return Cpp(true); }, FAULT_THREAD);
  call_close(&expected);
  call_close(&call);
  return 0;
}

/* Calls two models, each in a library of its own, from four threads of the application that share one thread pool, and
 * compares bytes with those of calls one after another. Exits with 0 where all are equal. */
#include <thread>

#include "boundary.h"
#include "relaybuild/model.hpp"

extern "C" {
const RbModelApi *model_api(void);
const RbModelApi *other_api(void);
}

namespace {

constexpr int kCallers = 4;
constexpr int kRounds = 6;
constexpr int32_t kThreads = 3;

void Run(const RbModelApi *api, const relaybuild::Options &options, const Call &expected) {
  relaybuild::Instance instance(api, options);
  const std::vector<relaybuild::ConstTensor> inputs(expected.tensors, expected.tensors + expected.inputs);
  for (int round = 0; round < kRounds; ++round) {
    instance.Run(inputs);
    for (int32_t i = 0; i < expected.outputs; ++i) {
      const relaybuild::Span<const float> found = instance.Output<float>(i);
      CHECK(!std::memcmp(found.data(), expected.tensors[expected.inputs + i].data, found.size_bytes()));
    }
  }
}

} // namespace

int main() {
  const RbModelApi *const models[] = {model_api(), other_api()};
  Call expected[2];
  for (int i = 0; i < 2; ++i) {
    RbInstance *instance = nullptr;
    call_open(&expected[i], models[i]->describe(), 1);
    CHECK(models[i]->create(1, &instance) == RB_OK && call_run(&expected[i], models[i], instance) == RB_OK);
    models[i]->destroy(instance);
  }
  relaybuild::ThreadPool pool(kThreads);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&, caller] {
      // each calls both, with all threads of the pool and with some
      Run(models[caller % 2], {kThreads - caller / 2, pool}, expected[caller % 2]);
      Run(models[(caller + 1) % 2], {0, pool}, expected[(caller + 1) % 2]);
    });
  }
  for (std::thread &caller : callers) {
    caller.join();
  }
  call_close(&expected[0]);
  call_close(&expected[1]);
  return 0;
}

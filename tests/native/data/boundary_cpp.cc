/* A C++ program at the boundary of a model that is linked: with threads of the model's, and in a pool that instances
 * share. Exits with 0 when all results were equal to the first. */
#include <thread>

#include "boundary.h"
#include "model.h"
#include "relaybuild/model.hpp"

namespace {

constexpr int32_t kThreads = 3;
constexpr int kCallers = 2;

void Run(const relaybuild::Options &options, const Call &expected) {
  relaybuild::Instance instance(model_api(), options);
  const std::vector<relaybuild::ConstTensor> inputs(expected.tensors, expected.tensors + expected.inputs);
  for (int run = 0; run < 2; ++run) {
    instance.Run(inputs);
    for (int32_t i = 0; i < expected.outputs; ++i) {
      const relaybuild::Span<const float> found = instance.Output<float>(i);
      const int32_t place = expected.inputs + i;
      CHECK(found.size_bytes() == expected.bytes[place]);
      CHECK(!std::memcmp(found.data(), expected.tensors[place].data, found.size_bytes()));
    }
  }
  DLManagedTensor *taken = instance.TakeOutput(0);
  taken->deleter(taken);
}

} // namespace

int main() {
  Call expected;
  call_open(&expected, model_describe(), 1);
  RbInstance *instance = nullptr;
  CHECK(model_create(1, &instance) == RB_OK && call_run(&expected, model_api(), instance) == RB_OK);
  model_destroy(instance);
  Run({1, nullptr}, expected);
  Run({kThreads, nullptr}, expected);
  {
    relaybuild::ThreadPool pool(kThreads);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&] { Run({0, pool}, expected); });
    }
    for (std::thread &caller : callers) {
      caller.join();
    }
  }
  call_close(&expected);
  return 0;
}

/* Calls the model `model` from several threads at a time, each with an instance of its own and by the function that
 * leases instances, and compares bytes with those of calls one after another. Exits with 0 where all are equal.
 *
 * With the argument `race` two threads write to one output, which no sanitizer may overlook. */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "relaybuild/packed.h"

extern "C" {
RbStatus model_create(int32_t threads, RbInstance **instance);
RbStatus model_run(RbInstance *instance, const DLTensor *const *inputs, int32_t num_inputs, DLTensor *const *outputs,
                   int32_t num_outputs);
void model_destroy(RbInstance *instance);
const RbModelInfo *model_describe(void);
const char *model_last_error(void);
int32_t __tvm_ffi_main(void *self, const RbValue *args, int32_t num_args, RbValue *result);
}

namespace {

constexpr int kCallers = 8;
constexpr int kRounds = 6;
constexpr int32_t kThreads = 2;

void Check(bool holds, const char *what) {
  if (!holds) {
    std::fprintf(stderr, "%s: %s\n", what, model_last_error());
    std::exit(1);
  }
}

size_t Elements(const RbTensorInfo &info) {
  size_t count = 1;
  for (int32_t i = 0; i < info.ndim; ++i) {
    count *= static_cast<size_t>(info.shape[i]);
  }
  return count;
}

/* The tensors of one call, all of float32. */
struct Call {
  std::vector<std::vector<float>> inputs, outputs;

  explicit Call(int seed) {
    const RbModelInfo *info = model_describe();
    for (int32_t i = 0; i < info->num_inputs; ++i) {
      inputs.emplace_back(Elements(info->inputs[i]));
      for (size_t k = 0; k < inputs.back().size(); ++k) {
        inputs.back()[k] = static_cast<float>((k * 7 + static_cast<size_t>(seed) * 5) % 23) * 0.1f - 1.0f;
      }
    }
    for (int32_t i = 0; i < info->num_outputs; ++i) {
      outputs.emplace_back(Elements(info->outputs[i]), -77.0f);
    }
  }

  std::vector<DLTensor> Tensors() {
    const RbModelInfo *info = model_describe();
    std::vector<DLTensor> tensors;
    for (size_t i = 0; i < inputs.size(); ++i) {
      tensors.push_back(rb_tensor(&info->inputs[i], inputs[i].data()));
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      tensors.push_back(rb_tensor(&info->outputs[i], outputs[i].data()));
    }
    return tensors;
  }

  void Run(RbInstance *instance) {
    std::vector<DLTensor> tensors = Tensors();
    std::vector<const DLTensor *> in;
    std::vector<DLTensor *> out;
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (i < inputs.size()) {
        in.push_back(&tensors[i]);
      } else {
        out.push_back(&tensors[i]);
      }
    }
    Check(model_run(instance, in.data(), static_cast<int32_t>(in.size()), out.data(),
                    static_cast<int32_t>(out.size())) == RB_OK,
          "run");
  }

  void RunLeased() {
    std::vector<DLTensor> tensors = Tensors();
    std::vector<RbValue> values(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      values[i].type = RB_VALUE_TENSOR;
      values[i].u.as_pointer = &tensors[i];
    }
    RbValue result{};
    Check(__tvm_ffi_main(nullptr, values.data(), static_cast<int32_t>(values.size()), &result) == 0, "main");
  }
};

RbInstance *Create() {
  RbInstance *instance = nullptr;
  Check(model_create(kThreads, &instance) == RB_OK, "create");
  return instance;
}

template <class Body> void FromAllThreads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int caller = 0; caller < count; ++caller) {
    threads.emplace_back([=] { body(caller); });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

void Race() {
  static Call shared(0);
  FromAllThreads(2, [](int) {
    RbInstance *instance = Create();
    for (int round = 0; round < kRounds; ++round) {
      shared.Run(instance);
    }
    model_destroy(instance);
  });
}

} // namespace

int main(int count, char **words) {
  if (count > 1 && std::strcmp(words[1], "race") == 0) {
    Race();
    return 0;
  }
  std::vector<Call> expected;
  RbInstance *alone = Create();
  for (int seed = 0; seed < kCallers; ++seed) {
    expected.emplace_back(seed);
    expected.back().Run(alone);
  }
  model_destroy(alone);
  Check(expected[0].outputs != expected[1].outputs, "different inputs have different results");
  FromAllThreads(kCallers, [&expected](int caller) {
    RbInstance *instance = Create();
    for (int round = 0; round < kRounds; ++round) {
      Call call(caller);
      call.Run(instance);
      Check(call.outputs == expected[static_cast<size_t>(caller)].outputs, "an instance of its own");
    }
    model_destroy(instance);
  });
  FromAllThreads(kCallers, [&expected](int caller) {
    for (int round = 0; round < kRounds; ++round) {
      Call call(caller);
      call.RunLeased();
      Check(call.outputs == expected[static_cast<size_t>(caller)].outputs, "a leased instance");
    }
  });
  return 0;
}

/* Uses two models through relaybuild/model.hpp in every way that it offers. Exits with 0 when all was right; what is
 * refused, and why, is checked to the letter. With an argument it does not fork. */
#include "relaybuild/model.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>
#if __cplusplus >= 202002L
#include <span>
#endif

#include "other.h"
#include "sample.h"

#define CHECK(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                                     \
      std::exit(1);                                                                                                    \
    }                                                                                                                  \
  } while (0)

namespace {

using relaybuild::ConstTensor;
using relaybuild::Errc;
using relaybuild::Instance;
using relaybuild::Model;
using relaybuild::Span;
using relaybuild::Status;
using relaybuild::Tensor;
using relaybuild::ThreadPool;

constexpr size_t kRows = 2, kColumns = 64, kCount = kRows * kColumns;

/* What the models compute: `sample` scales by 0.5 and `other` by 4 in turn with 2. */
void Check(float even, const std::vector<float> &x, const std::vector<float> &bias, Span<const float> y,
           Span<const float> total) {
  CHECK(y.size() == kCount && total.size() == kRows);
  for (size_t row = 0; row < kRows; ++row) {
    float sum = 0;
    for (size_t column = 0; column < kColumns; ++column) {
      const size_t i = row * kColumns + column;
      const float scale = i % 2 ? 2 * even * 2 : even * 2 * even;
      CHECK(y[i] == scale * x[(i + 3) % kCount] + bias[column]);
      sum += y[i];
    }
    CHECK(sum == total[row]);
  }
}

struct Numbers {
  std::vector<float> x, bias;

  explicit Numbers(int seed) : x(kCount), bias(kColumns) {
    for (size_t i = 0; i < kCount; ++i) {
      x[i] = static_cast<float>((i * 7 + static_cast<size_t>(seed)) % 13);
    }
    for (size_t i = 0; i < kColumns; ++i) {
      bias[i] = static_cast<float>(i % 5 + static_cast<size_t>(seed));
    }
  }
};

void Describes() {
  const Model model = sample_api();
  CHECK(model.name() == "sample" && model.target() == "c" && model.info().abi_version == RELAYBUILD_ABI_VERSION);
  CHECK(model.inputs().size() == 2 && model.outputs()[1].name() == "total");
  CHECK(model.inputs()[0].size() == kCount && model.inputs()[0].bytes() == 4 * kCount);
  std::string names;
  for (const relaybuild::TensorInfo info : model.inputs()) {
    names += std::string(info.name()) + " " + std::to_string(info.shape().size()) + ";";
  }
  CHECK(names == "x 2;the bias 1;");
}

void RunsOnWhatItIsGiven() {
  const Numbers in(3);
  Instance sample(sample_api());
  sample.Run({in.x, in.bias});
  Check(0.5f, in.x, in.bias, sample.Output<float>("y"), sample.Output<float>(SAMPLE_OUTPUT_TOTAL));

  float y[kCount];
  std::array<float, kRows> total;
  Instance other(other_api(), {2, nullptr});
  CHECK(other.num_threads() == 2);
  other.Run({in.x, in.bias}, {y, total});
  Check(4, in.x, in.bias, y, total);

  const std::vector<ConstTensor> inputs{in.x, {in.bias.data(), in.bias.size()}};
  const std::vector<Tensor> outputs{{y, kCount}, Span<float>(total)};
  std::memset(y, 0, sizeof y);
  other.Run(inputs, outputs);
  Check(4, in.x, in.bias, y, total);
#if __cplusplus >= 202002L
  const std::span<const float> x = in.x;
  std::memset(y, 0, sizeof y);
  other.Run({x, std::span(in.bias)}, {std::span(y), total});
  Check(4, in.x, in.bias, y, total);
  const std::span<const float> seen = other.Run({x, in.bias}).Output<float>("total");
  CHECK(seen.size() == kRows && seen[0] == total[0]);
#endif
}

void RunsOnWhatWasSet() {
  const Numbers in(5);
  std::vector<float> y(kCount);
  Instance sample(sample_api());
  sample.SetInput("the bias", in.bias);
  sample.SetOutput(0, y);
  const Span<float> x = sample.Input<float>(SAMPLE_INPUT_X);
  CHECK(x.size() == kCount && x[0] == 0 && x.back() == 0);
  std::copy(in.x.begin(), in.x.end(), x.begin());
  const Span<const float> total = sample.Output<float>("total");
  sample.Run();
  Check(0.5f, in.x, in.bias, y, total);
  CHECK(sample.Output<float>("y").data() == y.data());

  const std::array<int64_t, 2> shape{2, 64};
  sample.SetInput(0, ConstTensor(in.x, shape));
  Instance moved = std::move(sample);
  sample = Instance(other_api());
  sample.Run({in.x, in.bias}, {y, moved.Input<float>("x").first(2)});
  Check(4, in.x, in.bias, y, moved.Input<float>("x").first(2));
  moved.SetInput(0, in.x);
  moved.Run();
  Check(0.5f, in.x, in.bias, y, total);
}

void SpeaksDlpack() {
  const Numbers in(7);
  int64_t shape[] = {2, 64}, strides[] = {64, 1};
  DLTensor x{const_cast<float *>(in.x.data()), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  std::vector<float> memory(kCount + 1);
  DLManagedTensor y{
      {memory.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, sizeof(float)}, nullptr, nullptr};
  DLManagedTensor *handed = nullptr;
  {
    Instance sample(sample_api());
    sample.SetInput("x", x);
    sample.SetInput("the bias", in.bias);
    sample.SetOutput("y", y);
    sample.Run();
    handed = sample.TakeOutput("total");
    Check(0.5f, in.x, in.bias, sample.Output<float>("y"), {static_cast<float *>(handed->dl_tensor.data), 2});
    const void *before = handed->dl_tensor.data;
    sample.Run({x, in.bias});
    CHECK(sample.OutputTensor("total").data != before && sample.OutputTensor("y").byte_offset == sizeof(float));
  }
  const DLTensor &tensor = handed->dl_tensor;
  CHECK(tensor.ndim == 1 && tensor.shape[0] == 2 && !tensor.strides && tensor.dtype.bits == 32);
  Check(0.5f, in.x, in.bias, {memory.data() + 1, kCount}, {static_cast<float *>(tensor.data), 2});
  handed->deleter(handed);
}

void Expect(const Status &status, Errc code, const char *message) {
  if (status.code() != code || std::strcmp(status.message(), message) != 0) {
    std::fprintf(stderr, "%d: %s\n instead of %d: %s\n", static_cast<int>(status.code()), status.message(),
                 static_cast<int>(code), message);
    std::exit(1);
  }
}

void RefusesWhatDoesNotFit() {
  const Numbers in(1);
  const auto kTensor = Errc::invalid_tensor;
  const auto kArgument = Errc::invalid_argument;
  std::vector<float> y(kCount), total(kRows);
  const std::vector<double> doubles(kCount);
  const std::array<int64_t, 2> turned{64, 2};
  Instance sample(sample_api());
  Expect(sample.TrySetInput("x", doubles), kTensor, "input 'x' has dtype float64, expected float32");
  Expect(sample.TrySetInput("x", in.bias), kTensor, "input 'x' has 64 elements, expected 128 for shape (2, 64)");
  Expect(sample.TrySetInput("x", ConstTensor(in.x, turned)), kTensor, "input 'x' has shape (64, 2), expected (2, 64)");
  Expect(sample.TrySetInput("z", in.x), kArgument, "model 'sample' has no input 'z', its inputs are: 'x', 'the bias'");
  Expect(sample.TrySetOutput(2, y), kArgument, "model 'sample' has no output 2, its outputs are: 'y', 'total'");
  Expect(sample.TryOutput<int64_t>("total").status(), kTensor, "output 'total' has dtype int64, expected float32");
  Expect(sample.TryInput<bool>("x").status(), kTensor, "input 'x' has dtype bool, expected float32");
  Expect(sample.TryRun(), kArgument, "input 'x' was not set before the run");
  Expect(sample.TryRun({in.x}), kArgument, "run: got 1 inputs and 2 outputs, model 'sample' has 2 and 2");
  Expect(sample.TryRun({in.x, in.bias}, {y}), kArgument, "run: got 2 inputs and 1 outputs, model 'sample' has 2 and 2");
  Expect(sample.TryRun({in.x, in.bias}, {total, y}), kTensor,
         "output 'y' has 2 elements, expected 128 for shape (2, 64)");
  Expect(sample.TryRun({y, in.bias}, {y, total}), kTensor,
         "output 'y' shares memory with input 'x', expected memory of its own");
  Expect(sample.TryRun({{static_cast<float *>(nullptr), kCount}, in.bias}), kTensor,
         "the data of input 'x' is a null pointer");
  const char *odd = reinterpret_cast<const char *>(in.x.data()) + 1;
  Expect(sample.TryRun({{reinterpret_cast<const float *>(odd), kCount}, in.bias}), kTensor,
         "the data of input 'x' is not aligned to its element of 4 bytes");
  int64_t shape[] = {2, 64}, columns_first[] = {1, 2};
  DLTensor x{const_cast<float *>(in.x.data()), {kDLCUDA, 0}, 2, {kDLFloat, 32, 1}, shape, nullptr, 0};
  Expect(sample.TryRun({x, in.bias}), kTensor, "input 'x' is on a device of DLPack type 2, expected the CPU (1)");
  x.device.device_type = kDLCPU;
  x.strides = columns_first;
  Expect(sample.TryRun({x, in.bias}), kTensor,
         "input 'x' has strides (1, 2), expected a row-major tensor without gaps");
  x.ndim = 1;
  Expect(sample.TryRun({x, in.bias}), kTensor, "input 'x' has shape (2,), expected (2, 64)");
  sample.SetOutput("y", y);
  Expect(sample.TryTakeOutput("y").status(), kArgument,
         "output 'y' is in memory of the application, which has it already");
  Expect(Instance::Make(sample_api(), {-1, nullptr}).status(), kArgument,
         "threads is -1, expected 1 to 1024, or 0 for the default");
  Expect(sample.TryRun({in.x, in.bias}), Errc::ok, "");
}

/* A view of the instance's memory that is set is still there when the model runs, and can be taken from it. */
void KeepsItsMemoryThatIsSet() {
  const Numbers in(6);
  Instance sample(sample_api());
  const Span<float> x = sample.Input<float>("x");
  std::copy(in.x.begin(), in.x.end(), x.begin());
  sample.SetInput("x", x);
  sample.SetInput("the bias", in.bias);
  const Span<const float> y = sample.Output<float>("y");
  sample.SetOutput("y", sample.OutputTensor("y"));
  sample.Run();
  Check(0.5f, in.x, in.bias, y, sample.Output<float>("total"));
  CHECK(sample.Input<float>("x").data() == x.data());
  DLManagedTensor *taken = sample.TakeOutput("y");
  CHECK(taken->dl_tensor.data == y.data());
  taken->deleter(taken);
}

/* Of an output that did not fit no view could be made. */
void ChecksWhatIsSet() {
  const auto kTensor = Errc::invalid_tensor;
  std::vector<float> memory(kCount + 1);
  int64_t shape[] = {2, 64}, strides[] = {64, 1}, short_shape[] = {3}, turned[] = {1, 2};
  const DLTensor right{memory.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  Instance sample(sample_api());
  const auto refuses = [&](auto change, const char *message) {
    DLTensor tensor = right;
    change(&tensor);
    Expect(sample.TrySetOutput("y", tensor), kTensor, message);
    CHECK(sample.Output<float>("y").data() != memory.data());
  };
  refuses([&](DLTensor *y) { y->shape = short_shape, y->ndim = 1; }, "output 'y' has shape (3,), expected (2, 64)");
  refuses([&](DLTensor *y) { y->shape = nullptr; }, "output 'y' has 2 dimensions and a null pointer as shape");
  refuses([&](DLTensor *y) { y->ndim = -1; }, "output 'y' has -1 dimensions and a shape");
  refuses([&](DLTensor *y) { y->dtype.bits = 64; }, "output 'y' has dtype float64, expected float32");
  refuses([&](DLTensor *y) { y->strides = turned; },
          "output 'y' has strides (1, 2), expected a row-major tensor without gaps");
  refuses([&](DLTensor *y) { y->device.device_type = kDLCUDA; },
          "output 'y' is on a device of DLPack type 2, expected the CPU (1)");
  refuses([&](DLTensor *y) { y->data = nullptr; }, "the data of output 'y' is a null pointer");
  refuses([&](DLTensor *y) { y->byte_offset = 1; }, "the data of output 'y' is not aligned to its element of 4 bytes");
  Expect(sample.TrySetOutput("y", Tensor(static_cast<float *>(nullptr), kCount)), kTensor,
         "the data of output 'y' is a null pointer");
  sample.SetOutput("y", right);
  shape[0] = 3;
  CHECK(sample.Output<float>("y").data() == memory.data() && sample.OutputTensor("y").shape[0] == 2);
  Expect(sample.TryInput<float>(std::string_view()).status(), Errc::invalid_argument,
         "model 'sample' has no input '', its inputs are: 'x', 'the bias'");
}

/* Libraries that another release made. */
void ReadsOtherReleases() {
  RbModelApi earlier = *sample_api();
  earlier.struct_size = offsetof(RbModelApi, create_with);
  earlier.create_with = nullptr;
  const Numbers in(2);
  Instance sample(&earlier, {2, nullptr});
  sample.Run({in.x, in.bias});
  Check(0.5f, in.x, in.bias, sample.Output<float>(0), sample.Output<float>(1));
  ThreadPool pool(2);
  Expect(Instance::Make(&earlier, {0, pool}).status(), Errc::invalid_argument,
         "model 'sample' takes no thread pool: compile it again with this relaybuild");
  struct {
    RbModelApi known;
    void *more;
  } later{*sample_api(), nullptr};
  later.known.struct_size = sizeof later;
  CHECK(Instance::Make(&later.known, {0, pool}).ok());
}

void Throws() {
#if defined(__cpp_exceptions)
  const auto thrown = [](auto body) {
    try {
      body();
    } catch (const relaybuild::Error &error) {
      return std::make_pair(error.code(), std::string(error.what()));
    }
    return std::make_pair(Errc::ok, std::string());
  };
  Instance sample(sample_api());
  CHECK(thrown([&] { sample.Run(); }) ==
        std::make_pair(Errc::invalid_argument, std::string("input 'x' was not set before the run")));
  CHECK(thrown([&] { sample.Output<int8_t>("y"); }).second == "output 'y' has dtype int8, expected float32");
  CHECK(thrown([&] { Instance(sample_api(), {2000, nullptr}); }).second ==
        "threads is 2000, expected 1 to 1024, or 0 for the default");
  CHECK(thrown([&] { Model model(nullptr); }).second == "found a null pointer, expected the functions of a model");
  RbModelApi future = *sample_api();
  future.abi_version = 9;
  CHECK(thrown([&] { Model model(&future); }).second == "the model has interface version 9, this program was compiled "
                                                        "for version 1: compile both with the same relaybuild");
#endif
}

/* More threads of the application than the pool has, with instances of both models that need different numbers. */
void SharesThreads(int32_t threads, int callers, int runs) {
  ThreadPool pool(threads);
  CHECK(pool.threads() == threads);
  std::vector<std::thread> applications;
  for (int caller = 0; caller < callers; ++caller) {
    applications.emplace_back([&pool, caller, threads, runs] {
      const bool is_other = caller % 2;
      const int32_t wanted = caller % 3 ? threads : (threads + 1) / 2;
      Instance instance(is_other ? other_api() : sample_api(), {wanted, pool});
      CHECK(instance.num_threads() == wanted);
      for (int run = 0; run < runs; ++run) {
        const Numbers in(caller + run);
        instance.Run({in.x, in.bias});
        Check(is_other ? 4 : 0.5f, in.x, in.bias, instance.Output<float>(0), instance.Output<float>(1));
      }
    });
  }
  for (std::thread &application : applications) {
    application.join();
  }
}

/* The pool's threads do not come along into a child, nor does what they were waiting for. */
void SurvivesFork() {
  const Numbers in(4);
  ThreadPool pool(3);
  Instance before(sample_api(), {0, pool}), after(other_api(), {0, pool});
  before.Run({in.x, in.bias});
  const auto child = [&](auto body) {
    const pid_t id = fork();
    if (id == 0) {
      body();
      std::_Exit(0);
    }
    int status = -1;
    CHECK(waitpid(id, &status, 0) == id && status == 0);
  };
  const auto run = [&] {
    for (int i = 0; i < 3; ++i) {
      before.Run({in.x, in.bias});
      after.Run({in.x, in.bias});
    }
    Check(0.5f, in.x, in.bias, before.Output<float>(0), before.Output<float>(1));
    Check(4, in.x, in.bias, after.Output<float>(0), after.Output<float>(1));
  };
  child([] {});
  child([&] {
    run();
    child(run);
  });
  run();
}

/* What is refused is a std::error_code too, with the conditions of the standard library. */
void IsAnErrorCode() {
  Instance instance{Model(sample_api())};
  const std::vector<float> short_one(1);
  const std::error_code code = instance.TryRun({short_one, short_one}).error_code();
  CHECK(code == Errc::invalid_tensor && code != Errc::busy && code == std::errc::invalid_argument);
  CHECK(code.category() == relaybuild::error_category() && std::string(code.category().name()) == "relaybuild");
  CHECK(code.message() == "a tensor that does not fit");
  CHECK(!Status().error_code() && !std::error_code(Errc::ok));
  const std::error_code memory = Status::OutOfMemory().error_code();
  CHECK(memory == std::errc::not_enough_memory && std::error_code(Errc::internal) != std::errc::not_enough_memory);
  CHECK(std::error_code(Errc::region).message() != "unknown error");
  CHECK(std::error_code(static_cast<Errc>(99)).message() == "unknown error");
}

/* A pool that another process has made goes without waiting for threads that are not there. */
void ForgetsInAChild() {
  auto pool = std::make_unique<ThreadPool>(3);
  const pid_t id = fork();
  if (id == 0) {
    pool.reset();
    std::_Exit(0);
  }
  int status = -1;
  CHECK(waitpid(id, &status, 0) == id && status == 0);
}

} // namespace

int main(int count, char **) {
  Describes();
  RunsOnWhatItIsGiven();
  RunsOnWhatWasSet();
  SpeaksDlpack();
  RefusesWhatDoesNotFit();
  KeepsItsMemoryThatIsSet();
  ChecksWhatIsSet();
  ReadsOtherReleases();
  Throws();
  IsAnErrorCode();
  SharesThreads(1, 2, 3);
  SharesThreads(2, 4, 50);
  SharesThreads(4, 4, 50);
  SharesThreads(5, 7, 20);
  const auto pool = ThreadPool::Make(2);
  CHECK(pool.ok());
  if (count == 1) {
    SurvivesFork();
    ForgetsInAChild();
  }
  return 0;
}

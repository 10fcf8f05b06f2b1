/* SPDX-License-Identifier: Apache-2.0
 *
 * A C++ program over modules, for test_modules_cpp.py: `PROGRAM check FILE` loads an ExampleJSON file and tries
 * everything once, `PROGRAM threads FILE` runs its subgraphs from many threads, `PROGRAM library FILE NAME` calls a
 * function of a shared library or of a module's bytes, `PROGRAM model FILE` runs a library's model as an object. It
 * prints what went wrong and returns the number of faults. */
#include <atomic>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>

#include "relaybuild/model.hpp"
#include "relaybuild/module.h"

using relaybuild::Error;
using relaybuild::LoadModule;
using relaybuild::Module;
using relaybuild::PackedFunc;

namespace {

std::atomic<int> faults{0};

void Expect(bool holds, const char *what, int line) {
  if (!holds) {
    std::printf("line %d: expected %s\n", line, what);
    ++faults;
  }
}
#define EXPECT(condition) Expect(condition, #condition, __LINE__)

/* A tensor of float32 that owns its elements. */
class Tensor {
public:
  Tensor(std::vector<int64_t> shape, std::vector<float> elements)
      : shape_(std::move(shape)), elements_(std::move(elements)) {
    tensor_.data = elements_.data();
    tensor_.device = {kDLCPU, 0};
    tensor_.ndim = static_cast<int32_t>(shape_.size());
    tensor_.dtype = {kDLFloat, 32, 1};
    tensor_.shape = shape_.data();
  }
  Tensor(const Tensor &) = delete;
  Tensor &operator=(const Tensor &) = delete;

  const DLTensor &operator*() const {
    return tensor_;
  }
  DLTensor &operator*() {
    return tensor_;
  }
  const std::vector<float> &elements() const {
    return elements_;
  }

private:
  std::vector<int64_t> shape_;
  std::vector<float> elements_;
  DLTensor tensor_{};
};

void ExpectError(const std::function<void()> &action, const std::string &part, int line) {
  try {
    action();
    Expect(false, ("an error with: " + part).c_str(), line);
  } catch (const Error &error) {
    Expect(std::string(error.what()).find(part) != std::string::npos, (part + "\n  found " + error.what()).c_str(),
           line);
  }
}
#define EXPECT_ERROR(action, part) ExpectError([&] { action; }, part, __LINE__)

/* A kind of module whose functions are the names of its bytes. */
class WordsModule final : public relaybuild::ModuleNode {
public:
  explicit WordsModule(std::string words) : words_(std::move(words)) {}
  const char *type_key() const override {
    return "words";
  }
  PackedFunc GetFunction(const std::string &name) override {
    if (words_.find(name) == std::string::npos) {
      return PackedFunc();
    }
    const auto length = static_cast<int64_t>(words_.size());
    return PackedFunc([length](const RbValue *, int32_t, RbValue *result) { *result = relaybuild::MakeValue(length); });
  }
  std::vector<std::string> FunctionNames() const override {
    return {words_};
  }

private:
  std::string words_;
};

RELAYBUILD_REGISTER_BINARY_LOADER("words", "USE_WORDS", [](const char *data, size_t size) {
  return Module(std::make_shared<WordsModule>(std::string(data, size)));
});

void CheckCalls(const Module &module) {
  PackedFunc sum = module.GetFunction("sum"), clamp = module.GetFunction("clamp");
  Tensor a({2, 3}, {1, 2, 3, 4, 5, 6}), b({3}, {10, 20, 30}), out({2, 3}, std::vector<float>(6));
  Tensor x({4}, {-2, -1, 0, 9}), y({4}, std::vector<float>(4)), z({4}, std::vector<float>(4));
  sum(*a, *b, *out);
  clamp(*x, *y, *z);
  EXPECT((out.elements() == std::vector<float>{11, 22, 33, 14, 25, 36}));
  EXPECT((y.elements() == std::vector<float>{0, 0, 0, 2.5f}));
  EXPECT((z.elements() == std::vector<float>{-2, -1, 0, 9}));
  EXPECT(sum.signature() && sum.signature()->num_inputs == 2 && sum.signature()->num_outputs == 1);
  EXPECT_ERROR(sum(*a, *out), "got 2 arguments, function 'sum' takes 3: 2 inputs, then 1 outputs to write");
  EXPECT_ERROR(sum(*a, *a, *out), "function 'sum': input '1' has shape (2, 3), expected (3,)");
  EXPECT_ERROR(sum(*a, *b, *a), "function 'sum': output '2' shares memory with input '0', expected memory of its own");
  EXPECT_ERROR(sum(*a, 3.5, *out), "function 'sum': input '1' is a number, expected a tensor");
  EXPECT_ERROR(PackedFunc()(*a), "a function that is not there was called");
}

void CheckModules(const Module &module, const std::string &path) {
  EXPECT(std::string(module->type_key()) == "examplejson");
  EXPECT((module->FunctionNames() == std::vector<std::string>{"sum", "clamp"}));
  EXPECT(module->GetSource() == relaybuild::ReadFile(path));
  EXPECT_ERROR(module.GetFunction("x"), "of type 'examplejson' has no function 'x', its functions are: 'sum', 'clamp'");
  EXPECT_ERROR(LoadModule(path + "?"), "?' cannot be read: No such file or directory");
  EXPECT_ERROR(LoadModule("/"), "'/' is not a file, expected a module");
  EXPECT_ERROR(LoadModule(path, "npu"), "no loader 'runtime.module.loadfile_npu' for the format 'npu', expected one of "
                                        "'so', 'examplejson': link the runtime of its backend");
  EXPECT((relaybuild::LoaderNames() == std::vector<std::string>{"runtime.module.loadbinary_examplejson",
                                                                "runtime.module.loadbinary_words",
                                                                "runtime.module.loadfile_examplejson"}));

  std::string saved = module.SaveToBinary();
  CheckCalls(relaybuild::LoadFromBinary("examplejson", saved));
  EXPECT_ERROR(relaybuild::LoadFromBinary("words", saved), "the module is of type 'examplejson', expected 'words'");
  EXPECT_ERROR(relaybuild::LoadFromBinary("", saved.substr(0, 60)), "the module is cut short: it has 60 bytes");
  saved[saved.size() / 2] ^= 1;
  EXPECT_ERROR(relaybuild::LoadFromBinary("", saved), "the module was altered: its checksum does not match its bytes");
  EXPECT_ERROR(relaybuild::LoadFromBinary("", relaybuild::FrameBlob("npu", "USE_NPU", "")),
               "there is no loader 'runtime.module.loadbinary_npu' for a module of type 'npu': build with USE_NPU=ON");
}

void CheckImports(const Module &module) {
  const Module words = relaybuild::LoadFromBinary("", relaybuild::FrameBlob("words", "USE_WORDS", "one"));
  words.Import(module);
  EXPECT(words->imports().size() == 1);
  EXPECT(words.GetFunction("one")().u.as_int == 3);
  CheckCalls(words->imports()[0]);
  EXPECT(static_cast<bool>(words.GetFunction("clamp", true)));
  EXPECT_ERROR(words.GetFunction("clamp"), "of type 'words' has no function 'clamp', its functions are: 'one'");
  EXPECT_ERROR(words.GetFunction("x", true), "its functions are: 'one', 'sum', 'clamp'");
  EXPECT_ERROR(module.Import(words), "a module cannot import itself, or what imports it");
  EXPECT_ERROR(words.SaveToBinary(), "a module of type 'words' cannot be saved");
}

void RunThreads(const Module &module) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&module] {
      for (int round = 0; round < 200; ++round) {
        CheckCalls(module);
      }
    });
  }
  for (std::thread &thread : threads) {
    thread.join();
  }
}

void RunLibrary(const std::string &path, const std::string &name) {
  const Module module = LoadModule(path);
  PackedFunc function = module.GetFunction(name, true);
  Tensor x({4}, {-2, -1, 0, 9}), y({4}, std::vector<float>(4));
  function(*x, *y);
  for (const float element : y.elements()) {
    std::printf("%g ", static_cast<double>(element));
  }
  std::printf("%s", module->type_key());
  for (const Module &import : module->imports()) {
    std::printf(" %s", import->type_key());
  }
  std::printf("\n");
  EXPECT_ERROR(function(*x), "got 1 arguments, function '" + name + "' takes 2");
}

/* The model outlives the module, and with it the library's code. */
void RunModel(const std::string &path) {
  relaybuild::Instance instance(LoadModule(path).model(), {2, nullptr});
  const std::vector<float> x{-3, 0, 1, 9};
  for (const float value : instance.Run({x}).Output<float>(0)) {
    std::printf("%g ", static_cast<double>(value));
  }
  std::printf("%s\n", std::string(instance.model().name()).c_str());
}

} // namespace

int main(int count, char **arguments) {
  const std::string mode = count > 2 ? arguments[1] : "", path = count > 2 ? arguments[2] : "";
  try {
    if (mode == "library" && count == 4) {
      RunLibrary(path, arguments[3]);
      const bool is_gone = !dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      EXPECT(is_gone);
    } else if (mode == "model") {
      RunModel(path);
      const bool is_gone = !dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      EXPECT(is_gone);
    } else if (mode == "threads") {
      RunThreads(LoadModule(path));
    } else if (mode == "check") {
      const Module module = LoadModule(path, "examplejson");
      CheckCalls(module);
      CheckModules(module, path);
      CheckImports(module);
    } else {
      std::printf("expected 'check FILE', 'threads FILE', 'model FILE' or 'library FILE NAME'\n");
      return 100;
    }
  } catch (const Error &error) {
    std::printf("unexpected: %s\n", error.what());
    ++faults;
  }
  return faults;
}

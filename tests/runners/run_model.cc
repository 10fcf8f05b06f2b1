/* Runs a library's `main` once: run_model LIBRARY IN OUT TENSOR... A TENSOR is `i` or `o` (input or output) and its
 * extents, as in i1,3,224,224; all are float32. IN and OUT hold the tensors' bytes one behind the other. */
#include "relaybuild/module.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <list>
#include <string>
#include <vector>

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> data;

  explicit Tensor(const char *extents) {
    size_t count = 1;
    for (const char *at = extents; *at;) {
      char *end;
      shape.push_back(std::strtoll(at, &end, 10));
      count *= static_cast<size_t>(shape.back());
      at = *end == ',' ? end + 1 : end;
    }
    data.resize(count);
  }
  DLTensor view() {
    return {data.data(), {kDLCPU, 0}, static_cast<int32_t>(shape.size()), {kDLFloat, 32, 1}, shape.data(), nullptr, 0};
  }
  char *bytes() {
    return reinterpret_cast<char *>(data.data());
  }
  std::streamsize size() const {
    return static_cast<std::streamsize>(data.size() * sizeof(float));
  }
};

int main(int argc, char **argv) {
  if (argc < 5)
    return 2;
  try {
    std::ifstream in(argv[2], std::ios::binary);
    std::ofstream out(argv[3], std::ios::binary);
    std::list<Tensor> tensors;
    std::list<DLTensor> views;
    std::vector<RbValue> values;
    for (int i = 4; i < argc; ++i) {
      Tensor &tensor = tensors.emplace_back(argv[i] + 1);
      if (argv[i][0] == 'i' && !in.read(tensor.bytes(), tensor.size()))
        throw relaybuild::Error("the file of inputs is too short");
      values.push_back(relaybuild::MakeValue(views.emplace_back(tensor.view())));
    }
    const relaybuild::Module module = relaybuild::LoadModule(argv[1]);
    module.GetFunction("main").Call(values.data(), static_cast<int32_t>(values.size()));
    int number = 4;
    for (Tensor &tensor : tensors) {
      if (argv[number++][0] == 'o')
        out.write(tensor.bytes(), tensor.size());
    }
    return 0;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

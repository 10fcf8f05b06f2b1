/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads texts and frames, and runs what they describe where that is small, for test_example_json.py. Standard input
 * holds cases one after another, each a number of bytes (decimal, then a newline) and the bytes. For each it prints one
 * line: "ok", or the error's text. Whatever else happens ends the program. */
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "relaybuild/module.h"

namespace {

constexpr size_t kMostBytes = 1 << 16; /* of a tensor that is run */

size_t Bytes(const RbTensorInfo &info) {
  size_t bytes = info.dtype.bits / 8;
  for (int32_t i = 0; i < info.ndim; ++i) {
    const auto extent = static_cast<size_t>(info.shape[i]);
    if (extent && bytes > kMostBytes / extent) {
      return kMostBytes + 1;
    }
    bytes *= extent;
  }
  return bytes;
}

/* Calls a function with tensors of their exact size, so that an access beyond one is seen. */
void Run(const relaybuild::PackedFunc &function) {
  const RbSignature &signature = *function.signature();
  std::vector<RbTensorInfo> infos(signature.inputs, signature.inputs + signature.num_inputs);
  infos.insert(infos.end(), signature.outputs, signature.outputs + signature.num_outputs);
  std::vector<std::vector<unsigned char>> memory;
  std::vector<DLTensor> tensors;
  std::vector<RbValue> values;
  for (const RbTensorInfo &info : infos) {
    const size_t bytes = Bytes(info);
    if (bytes > kMostBytes) {
      return;
    }
    memory.emplace_back(bytes, static_cast<unsigned char>(3));
    tensors.push_back(rb_tensor(&info, memory.back().data()));
  }
  for (const DLTensor &tensor : tensors) {
    values.push_back(relaybuild::MakeValue(tensor));
  }
  function.Call(values.data(), static_cast<int32_t>(values.size()));
}

void Try(const std::string &data) {
  const bool is_frame = data.substr(0, 1) == "\x89";
  const std::string framed = is_frame ? data : relaybuild::FrameBlob("examplejson", "", data);
  const relaybuild::Module module = relaybuild::LoadFromBinary("", framed);
  for (const std::string &name : module->FunctionNames()) {
    Run(module.GetFunction(name));
  }
  const relaybuild::Module again = relaybuild::LoadFromBinary("examplejson", module.SaveToBinary());
  if (again->GetSource() != module->GetSource() || again->FunctionNames() != module->FunctionNames()) {
    throw std::logic_error("what was saved is not what is loaded");
  }
}

} // namespace

int main() {
  size_t size = 0;
  while (std::cin >> size) {
    std::cin.get();
    std::string data(size, '\0');
    std::cin.read(data.data(), static_cast<std::streamsize>(size));
    try {
      Try(data);
      std::cout << "ok\n";
    } catch (const relaybuild::Error &error) {
      std::string text = error.what();
      for (char &c : text) {
        c = c == '\n' ? ' ' : c;
      }
      std::cout << text << "\n";
    }
    std::cout.flush();
  }
}

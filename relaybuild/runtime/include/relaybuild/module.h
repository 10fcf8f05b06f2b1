/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules for C++17: functions over tensors that come from a library, a file, or bytes within a library. It knows the
 * C interface of packed functions, and no kind of module: kinds are registered by their type keys. */
#ifndef RELAYBUILD_MODULE_H_
#define RELAYBUILD_MODULE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "relaybuild/error.hpp"
#include "relaybuild/packed.h"

namespace relaybuild {

inline RbValue MakeValue(const DLTensor *tensor) {
  RbValue value{};
  value.type = RB_VALUE_TENSOR;
  value.u.as_pointer = const_cast<DLTensor *>(tensor);
  return value;
}
inline RbValue MakeValue(const DLTensor &tensor) {
  return MakeValue(&tensor);
}
inline RbValue MakeValue(int64_t number) {
  RbValue value{};
  value.type = RB_VALUE_INT;
  value.u.as_int = number;
  return value;
}
inline RbValue MakeValue(double number) {
  RbValue value{};
  value.type = RB_VALUE_FLOAT;
  value.u.as_float = number;
  return value;
}
/* The text must outlive the value. */
inline RbValue MakeValue(const char *text) {
  RbValue value{};
  value.type = RB_VALUE_TEXT;
  value.u.as_text = text;
  return value;
}

/* Names and types of a function's tensors; `c()` is valid for as long as the signature is neither moved nor gone. */
class Signature {
public:
  struct Tensor {
    std::string name;
    DLDataType dtype;
    std::vector<int64_t> shape;
  };

  Signature(std::string name, std::vector<Tensor> inputs, std::vector<Tensor> outputs);
  Signature(const Signature &) = delete;
  Signature &operator=(const Signature &) = delete;

  const RbSignature &c() const {
    return c_;
  }

private:
  std::string name_;
  std::vector<Tensor> inputs_, outputs_;
  std::vector<RbTensorInfo> input_infos_, output_infos_;
  RbSignature c_;
};

/* Checks the arguments of a packed function as rb_unpack() does, and also that no output shares memory with another
 * tensor. Returns where the first element of each tensor lies, inputs before outputs. Throws Error. */
std::vector<void *> Unpack(const RbSignature &signature, const RbValue *args, int32_t num_args);

/* A function over tensors, those that it reads before those that it writes. It keeps alive what it needs, and may be
 * called from several threads at a time. */
class PackedFunc {
public:
  /* Throws Error where the call fails. */
  using Body = std::function<void(const RbValue *args, int32_t num_args, RbValue *result)>;

  /* A function that is not there. */
  PackedFunc() = default;
  /* `signature` may be null: not known. */
  explicit PackedFunc(Body body, std::shared_ptr<const RbSignature> signature = nullptr)
      : body_(std::move(body)), signature_(std::move(signature)) {}

  explicit operator bool() const {
    return static_cast<bool>(body_);
  }

  /* What the function takes, or null where that is not known. */
  const RbSignature *signature() const {
    return signature_.get();
  }

  /* Throws Error where the call fails. */
  RbValue Call(const RbValue *args, int32_t num_args) const;

  /* Calls it with DLTensors (or pointers to them), numbers and texts. */
  template <class... Args> RbValue operator()(Args &&...args) const {
    const std::array<RbValue, sizeof...(Args)> values{{MakeValue(std::forward<Args>(args))...}};
    return Call(values.data(), static_cast<int32_t>(values.size()));
  }

private:
  Body body_;
  std::shared_ptr<const RbSignature> signature_;
};

class ModuleNode;

/* A handle of a module; copies refer to the same one. */
class Module {
public:
  Module() = default;
  explicit Module(std::shared_ptr<ModuleNode> node) : node_(std::move(node)) {}

  explicit operator bool() const {
    return static_cast<bool>(node_);
  }
  ModuleNode *operator->() const {
    return node_.get();
  }
  const std::shared_ptr<ModuleNode> &node() const {
    return node_;
  }

  /* The function of a name, which stays valid without the module; with `query_imports` also one of the modules that
   * this one imports, searched depth first. Throws Error, which lists the functions, where there is none. */
  PackedFunc GetFunction(const std::string &name, bool query_imports = false) const;

  /* The functions of the model that the module is, for relaybuild/model.hpp; they keep the library loaded. Null where
   * it is no model's library. */
  std::shared_ptr<const RbModelApi> model() const;

  /* The module in a frame (see FrameBlob), for LoadFromBinary. Throws Error for a kind that cannot be saved. */
  std::string SaveToBinary() const;

  /* Makes `other` an import of this module. Throws Error where `other` imports this one. */
  void Import(Module other) const;

private:
  std::shared_ptr<ModuleNode> node_;
};

/* What a kind of module implements. All but Import may be called from several threads at a time. */
class ModuleNode {
public:
  ModuleNode() = default;
  ModuleNode(const ModuleNode &) = delete;
  ModuleNode &operator=(const ModuleNode &) = delete;
  virtual ~ModuleNode();

  /* The name of the kind, by which loaders are found. */
  virtual const char *type_key() const = 0;

  /* The function of a name, or an empty one. It must keep alive what it needs of this module. */
  virtual PackedFunc GetFunction(const std::string &name) = 0;

  /* The names that are known, in order. */
  virtual std::vector<std::string> FunctionNames() const = 0;

  /* A text that shows what the module is, "" where there is none; a kind says which formats it knows beside "". */
  virtual std::string GetSource(const std::string &format = "") const;

  /* What Module::model() returns. */
  virtual std::shared_ptr<const RbModelApi> model() const;

  /* Appends the bytes that the loader of the type key makes the same module of. Throws Error unless overridden. */
  virtual void SaveToBinary(std::string *out) const;

  const std::vector<Module> &imports() const {
    return imports_;
  }

private:
  friend class Module;
  std::vector<Module> imports_;
};

/* Makes a module of bytes that ModuleNode::SaveToBinary of its kind wrote. */
using BinaryLoader = std::function<Module(const char *data, size_t size)>;
/* Makes a module of a file. */
using FileLoader = std::function<Module(const std::string &path)>;

/* Make loaders known under `runtime.module.loadbinary_<key>` and `runtime.module.loadfile_<key>`, in place of others of
 * that name. `flag` is the switch of config.cmake that brings the kind, "" where there is none. */
void RegisterBinaryLoader(const std::string &key, const std::string &flag, BinaryLoader loader);
void RegisterFileLoader(const std::string &key, FileLoader loader);

/* The full names of all loaders, sorted. */
std::vector<std::string> LoaderNames();

/* Bytes of a module of some kind, with what is needed to check them and to find their loader. */
struct Blob {
  std::string type_key;
  std::string flag;
  std::string_view payload;
};

/* The frame around a module's bytes, all numbers little-endian:
 *
 *   8 bytes  89 "RBLOB" 0D 0A
 *   u32      version of the frame, 1
 *   u32      length of the type key
 *   u32      length of the flag's name
 *   u64      length of the payload
 *            type key, flag's name, payload
 *   u32      CRC-32 (that of zlib) of all bytes before
 */
std::string FrameBlob(const std::string &type_key, const std::string &flag, std::string_view payload);

/* Reads a frame; the payload is a view of `data`. Throws Error, which says what is wrong, for bytes that are none, are
 * cut short, were altered, or have a newer version. */
Blob UnframeBlob(std::string_view data);

/* The module in a frame, by the loader of its type key. Throws Error where the key is not `type_key` ("" takes any),
 * where no such loader is registered (it names the flag that brings one), and as UnframeBlob() does. */
Module LoadFromBinary(const std::string &type_key, std::string_view data);

/* The module in a file: a shared library of relaybuild's ("so"), a frame, or what the loader of a format reads. The
 * format is told by the content or by the end of the file's name where it is "". Nothing is written. A library has
 * "main" (the model) and its regions as functions, and modules of the kinds that bring the regions as imports. Throws
 * Error. */
Module LoadModule(const std::string &path, const std::string &format = "");

/* The content of a file. Throws Error where it cannot be read. */
std::string ReadFile(const std::string &path);

} // namespace relaybuild

#define RELAYBUILD_CONCATENATE_(a, b) a##b
#define RELAYBUILD_CONCATENATE(a, b) RELAYBUILD_CONCATENATE_(a, b)

/* At namespace scope: registers loaders before main() begins. */
#define RELAYBUILD_REGISTER_BINARY_LOADER(key, flag, loader)                                                           \
  [[maybe_unused]] static const bool RELAYBUILD_CONCATENATE(relaybuild_loader_, __COUNTER__) =                         \
      (::relaybuild::RegisterBinaryLoader(key, flag, loader), true)
#define RELAYBUILD_REGISTER_FILE_LOADER(key, loader)                                                                   \
  [[maybe_unused]] static const bool RELAYBUILD_CONCATENATE(relaybuild_loader_, __COUNTER__) =                         \
      (::relaybuild::RegisterFileLoader(key, loader), true)

#endif

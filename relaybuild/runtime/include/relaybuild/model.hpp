/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled models for C++17, over the C interface:
 *
 *   relaybuild::Instance digits(digits_api());
 *   for (float score : digits.Run({image}).Output<float>("scores")) {
 *     std::cout << score << '\n';
 *   }
 *
 * Tensors are views of memory that stays where it is: arrays, std::vector, std::array, std::span, relaybuild::Span and
 * DLTensor are taken as they are, and nothing is copied. It needs the C++ standard library alone; it does not know how
 * models are compiled or found. */
#ifndef RELAYBUILD_MODEL_HPP_
#define RELAYBUILD_MODEL_HPP_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "relaybuild/error.hpp"
#include "relaybuild/model.h"
#include "relaybuild/span.hpp"
#include "relaybuild/thread_pool.hpp"

namespace relaybuild {

/* Bits of a 16-bit floating-point number, for models that have such tensors. */
struct Float16 {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

/* The dtype of tensors of T; a program may specialise it for a type of its own. There is none for char, which is text.
 */
template <class T, class = void> struct DataTypeOf;
template <class T> struct DataTypeOf<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, char>>> {
  static constexpr DLDataType value{std::is_signed_v<T> ? kDLInt : kDLUInt, 8 * sizeof(T), 1};
};
template <> struct DataTypeOf<bool> {
  static constexpr DLDataType value{kDLBool, 8, 1};
};
template <> struct DataTypeOf<float> {
  static constexpr DLDataType value{kDLFloat, 32, 1};
};
template <> struct DataTypeOf<double> {
  static constexpr DLDataType value{kDLFloat, 64, 1};
};
template <> struct DataTypeOf<Float16> {
  static constexpr DLDataType value{kDLFloat, 16, 1};
};
template <> struct DataTypeOf<BFloat16> {
  static constexpr DLDataType value{kDLBfloat, 16, 1};
};

namespace internal {

template <class T, class = void> struct HasDataType : std::false_type {};
template <class T> struct HasDataType<T, std::void_t<decltype(DataTypeOf<T>::value)>> : std::true_type {};

/* Whether C has elements of a dtype, which can be written to where `writable` says so. */
template <class C, bool writable, class = void> struct IsTensor : std::false_type {};
template <class C, bool writable>
struct IsTensor<C, writable, std::enable_if_t<HasElements<C>::value>>
    : std::bool_constant<HasDataType<std::remove_cv_t<ElementOf<C>>>::value &&
                         !(writable && std::is_const_v<ElementOf<C>>)> {};

template <class C, class = void> struct HasTupleSize : std::false_type {};
template <class C> struct HasTupleSize<C, std::void_t<decltype(std::tuple_size<C>::value)>> : std::true_type {};

/* Whether the elements go when the object goes: views are copied as they are, and so is std::array, a tuple. */
template <class C>
inline constexpr bool kOwnsElements =
    HasElements<C>::value && (!std::is_trivially_copyable_v<C> || HasTupleSize<C>::value || std::is_array_v<C>);

inline bool SameType(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

inline std::string TypeText(DLDataType type) {
  static constexpr const char *kNames[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  std::string text = type.code < sizeof kNames / sizeof kNames[0] ? kNames[type.code] : "unknown";
  if (type.code != kDLBool || type.bits != 8) {
    text += std::to_string(type.bits);
  }
  return type.lanes == 1 ? text : text + "x" + std::to_string(type.lanes);
}

inline std::string ShapeText(Span<const int64_t> shape) {
  std::string text = "(";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    text += std::to_string(shape[i]) + (shape.size() == 1 ? "," : i + 1 < shape.size() ? ", " : "");
  }
  return text + ")";
}

/* Row-major without gaps; the stride of an extent of 1 means nothing. */
inline bool IsCompact(const DLTensor &tensor) noexcept {
  int64_t expected = 1;
  for (int32_t i = tensor.ndim - 1; tensor.strides && i >= 0; --i) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) {
      return false;
    }
    expected *= tensor.shape[i];
  }
  return true;
}

/* What the address of a tensor's data is a multiple of. */
inline std::size_t AlignmentOf(DLDataType type) noexcept {
  const std::size_t bytes = (std::size_t{type.bits} + 7) / 8;
  return type.code == kDLComplex ? bytes / 2 : std::max<std::size_t>(bytes, 1);
}

/* The address of the first element; 0 where there is none. */
inline std::uintptr_t AddressOf(const DLTensor &tensor) noexcept {
  return tensor.data ? reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset : 0;
}

inline std::string Quoted(const char *name) {
  return std::string("'") + name + "'";
}

} // namespace internal

/* What a model says of one of its inputs or outputs; valid as long as the model is. */
class TensorInfo {
public:
  explicit TensorInfo(const RbTensorInfo *info) noexcept : info_(info) {}

  std::string_view name() const noexcept {
    return info_->name;
  }
  Span<const int64_t> shape() const noexcept {
    return {info_->shape, static_cast<std::size_t>(info_->ndim)};
  }
  DLDataType dtype() const noexcept {
    return info_->dtype;
  }
  /* The number of elements. */
  std::size_t size() const noexcept {
    std::size_t count = 1;
    for (const int64_t extent : shape()) {
      count *= static_cast<std::size_t>(extent);
    }
    return count;
  }
  std::size_t bytes() const noexcept {
    return (size() * info_->dtype.bits * info_->dtype.lanes + 7) / 8;
  }
  const RbTensorInfo *c() const noexcept {
    return info_;
  }

private:
  const RbTensorInfo *info_;
};

/* The tensors of a model's one side, in its order. */
class TensorInfos {
public:
  TensorInfos(const RbTensorInfo *infos, int32_t count) noexcept : infos_(infos), count_(count) {}

  class iterator {
  public:
    explicit iterator(const RbTensorInfo *at) noexcept : at_(at) {}
    TensorInfo operator*() const noexcept {
      return TensorInfo(at_);
    }
    iterator &operator++() noexcept {
      ++at_;
      return *this;
    }
    bool operator!=(const iterator &other) const noexcept {
      return at_ != other.at_;
    }

  private:
    const RbTensorInfo *at_;
  };

  std::size_t size() const noexcept {
    return static_cast<std::size_t>(count_);
  }
  TensorInfo operator[](std::size_t index) const noexcept {
    return TensorInfo(infos_ + index);
  }
  iterator begin() const noexcept {
    return iterator(infos_);
  }
  iterator end() const noexcept {
    return iterator(infos_ + count_);
  }

private:
  const RbTensorInfo *infos_;
  int32_t count_;
};

/* Which input or output: its place in the model's order (constants of the model's header), or its name. */
class Key {
public:
  template <class I, std::enable_if_t<std::is_integral_v<I> || std::is_enum_v<I>, int> = 0>
  Key(I index) noexcept : index_(static_cast<int64_t>(index)) {}
  Key(const char *name) noexcept : Key(std::string_view(name)) {}
  Key(std::string_view name) noexcept : name_(name), is_name_(true) {}
  Key(const std::string &name) noexcept : Key(std::string_view(name)) {}

  /* The place among `infos`, or -1. */
  int32_t Find(TensorInfos infos) const noexcept {
    const auto count = static_cast<int64_t>(infos.size());
    if (!is_name_) {
      return static_cast<int32_t>(index_ >= 0 && index_ < count ? index_ : -1);
    }
    for (int64_t i = 0; i < count; ++i) {
      if (infos[static_cast<std::size_t>(i)].name() == name_) {
        return static_cast<int32_t>(i);
      }
    }
    return -1;
  }

  std::string Text() const {
    return is_name_ ? "'" + std::string(name_) + "'" : std::to_string(index_);
  }

private:
  std::string_view name_;
  int64_t index_ = 0;
  bool is_name_ = false;
};

/* A view that a model reads. Without a shape, the elements have the shape that the model wants, which has to have as
 * many. A DLTensor is checked when it is set or the model runs with it; its shape and strides must be there until then.
 */
class ConstTensor {
public:
  ConstTensor(const DLTensor &tensor) noexcept : tensor_(tensor), is_dlpack_(true) {}
  ConstTensor(const DLManagedTensor &tensor) noexcept : ConstTensor(tensor.dl_tensor) {}
  template <class C, std::enable_if_t<internal::IsTensor<const C, false>::value, int> = 0>
  ConstTensor(const C &elements) noexcept : ConstTensor(std::data(elements), std::size(elements)) {}
  template <class C, std::enable_if_t<internal::IsTensor<const C, false>::value, int> = 0>
  ConstTensor(const C &elements, Span<const int64_t> shape) noexcept : ConstTensor(elements) {
    shape_ = shape;
    has_shape_ = true;
  }
  template <class T, std::enable_if_t<internal::HasDataType<T>::value, int> = 0>
  ConstTensor(const T *elements, std::size_t count) noexcept : count_(count) {
    tensor_.data = const_cast<T *>(elements);
    tensor_.dtype = DataTypeOf<T>::value;
    tensor_.device.device_type = kDLCPU;
  }

private:
  friend class Instance;

  DLTensor tensor_{};
  std::size_t count_ = 0;
  Span<const int64_t> shape_;
  bool is_dlpack_ = false;
  bool has_shape_ = false;
};

/* A view that a model writes to; otherwise as ConstTensor. */
class Tensor : public ConstTensor {
  template <class C>
  static constexpr bool kIsWritable = internal::IsTensor<std::remove_reference_t<C>, true>::value &&
                                      (std::is_lvalue_reference_v<C> || !internal::kOwnsElements<C>);

public:
  Tensor(const DLTensor &tensor) noexcept : ConstTensor(tensor) {}
  Tensor(const DLManagedTensor &tensor) noexcept : ConstTensor(tensor) {}
  template <class C, std::enable_if_t<kIsWritable<C>, int> = 0> Tensor(C &&elements) noexcept : ConstTensor(elements) {}
  template <class C, std::enable_if_t<kIsWritable<C>, int> = 0>
  Tensor(C &&elements, Span<const int64_t> shape) noexcept : ConstTensor(elements, shape) {}
  template <class T, std::enable_if_t<internal::HasDataType<T>::value, int> = 0>
  Tensor(T *elements, std::size_t count) noexcept : ConstTensor(elements, count) {}
};

/* A model that is linked into the program or loaded by it. Copies are the same model. */
class Model {
public:
  /* `api` is what NAME_api() of the model's header returns. Throws Error for a null pointer, and for a library that a
   * release made which is too old or too new. */
  Model(const RbModelApi *api) : Model(std::shared_ptr<const RbModelApi>(std::shared_ptr<void>(), api)) {}
  /* Keeps loaded what `api` keeps: see Module::model() of relaybuild/module.h. */
  Model(std::shared_ptr<const RbModelApi> api) : api_(std::move(api)) {
    Check().OrThrow();
  }

  std::string_view name() const noexcept {
    return info().name;
  }
  std::string_view target() const noexcept {
    return info().target;
  }
  TensorInfos inputs() const noexcept {
    return {info().inputs, info().num_inputs};
  }
  TensorInfos outputs() const noexcept {
    return {info().outputs, info().num_outputs};
  }
  /* All that the model says of itself. */
  const RbModelInfo &info() const noexcept {
    return *api_->describe();
  }
  const RbModelApi *api() const noexcept {
    return api_.get();
  }

private:
  Status Check() const {
    if (!api_) {
      return Status(Errc::invalid_argument, "found a null pointer, expected the functions of a model");
    }
    if (api_->abi_version != RELAYBUILD_ABI_VERSION) {
      return Status(Errc::invalid_argument, "the model has interface version " + std::to_string(api_->abi_version) +
                                                ", this program was compiled for version " +
                                                std::to_string(RELAYBUILD_ABI_VERSION) +
                                                ": compile both with the same relaybuild");
    }
    return Status();
  }

  std::shared_ptr<const RbModelApi> api_;
};

/* How an instance computes. */
struct Options {
  int32_t threads = 0;                /* 0: the default, or all of `pool` */
  const RbThreadPool *pool = nullptr; /* a ThreadPool, or threads of the application; null: threads of its own */
};

/* One inference at a time. Inputs are given to each Run(), or set before; outputs are in memory of the instance unless
 * they are set. Functions throw Error; each has a twin whose name begins with Try, which returns a Status or a Result.
 *
 * An instance serves one thread at a time; different instances are independent. One that was moved from can be
 * destroyed or assigned to, and nothing else. */
class Instance {
public:
  explicit Instance(Model model, const Options &options = {}) : Instance(Closed{std::move(model)}) {
    Open(options).OrThrow();
  }

  static Result<Instance> Make(Model model, const Options &options = {}) noexcept {
    return internal::WithMemory([&]() -> Result<Instance> {
      Instance made(Closed{std::move(model)});
      Status status = made.Open(options);
      if (!status.ok()) {
        return status;
      }
      return made;
    });
  }

  const Model &model() const noexcept {
    return model_;
  }
  /* Threads of a run, the caller's included. */
  int32_t num_threads() const noexcept {
    return model_.api()->num_threads(instance_.get());
  }

  /* Reads this input from there in each Run() that is given no inputs; the memory has to stay. */
  template <class C> void SetInput(Key key, C &&elements) {
    TrySetInput(key, std::forward<C>(elements)).OrThrow();
  }
  template <class C> Status TrySetInput(Key key, C &&elements) noexcept {
    CheckLifetime<C>();
    return Set(key, kInput, ConstTensor(elements));
  }
  Status TrySetInput(Key key, ConstTensor tensor) noexcept {
    return Set(key, kInput, tensor);
  }
  void SetInput(Key key, ConstTensor tensor) {
    TrySetInput(key, tensor).OrThrow();
  }

  /* Writes this output there in each Run() that is given no outputs; the memory has to stay. */
  template <class C> void SetOutput(Key key, C &&elements) {
    TrySetOutput(key, std::forward<C>(elements)).OrThrow();
  }
  template <class C> Status TrySetOutput(Key key, C &&elements) noexcept {
    CheckLifetime<C>();
    return Set(key, kOutput, Tensor(elements));
  }
  Status TrySetOutput(Key key, Tensor tensor) noexcept {
    return Set(key, kOutput, tensor);
  }
  void SetOutput(Key key, Tensor tensor) {
    TrySetOutput(key, tensor).OrThrow();
  }

  /* Memory of the instance for this input, to fill in; zeros at first. From then on Run() reads it. */
  template <class T> Span<T> Input(Key key) {
    return TryInput<T>(key).value();
  }
  template <class T> Result<Span<T>> TryInput(Key key) noexcept {
    return internal::WithMemory([&]() -> Result<Span<T>> {
      int32_t index = 0;
      Status status = FindOwn<T>(key, kInput, true, &index);
      return status.ok() ? Result<Span<T>>(Elements<T>(index)) : Result<Span<T>>(std::move(status));
    });
  }

  /* Where this output is written to: what was set, or memory of the instance, which Run() overwrites. */
  template <class T> Span<const T> Output(Key key) {
    return TryOutput<T>(key).value();
  }
  template <class T> Result<Span<const T>> TryOutput(Key key) noexcept {
    return internal::WithMemory([&]() -> Result<Span<const T>> {
      int32_t index = 0;
      Status status = FindOwn<T>(key, kOutput, false, &index);
      return status.ok() ? Result<Span<const T>>(Elements<T>(index)) : Result<Span<const T>>(std::move(status));
    });
  }

  /* The same as a DLTensor, which stays valid as long as the instance does. */
  const DLTensor &OutputTensor(Key key) {
    const DLTensor *tensor = nullptr;
    TryOutputTensor(key, &tensor).OrThrow();
    return *tensor;
  }
  Status TryOutputTensor(Key key, const DLTensor **tensor) noexcept {
    return internal::WithMemory([&]() -> Status {
      int32_t index = 0;
      Status status = Find(key, kOutput, &index);
      status = status.ok() ? Allocate(index, false) : std::move(status);
      *tensor = status.ok() ? &At(index).tensor : nullptr;
      return status;
    });
  }

  /* Hands an output's memory over; the next run has memory of its own. Whoever takes it calls its deleter, if need be
   * when the instance and the library are gone. Throws Error where the memory is not the instance's. */
  DLManagedTensor *TakeOutput(Key key) {
    return TryTakeOutput(key).value();
  }
  Result<DLManagedTensor *> TryTakeOutput(Key key) noexcept {
    return internal::WithMemory([&]() -> Result<DLManagedTensor *> {
      int32_t index = 0;
      Status status = Find(key, kOutput, &index);
      status = status.ok() ? Allocate(index, false) : std::move(status);
      if (status.ok() && !At(index).memory) {
        status = Status(Errc::invalid_argument, "output " + internal::Quoted(Info(index).c()->name) +
                                                    " is in memory of the application, which has it already");
      }
      return status.ok() ? Result<DLManagedTensor *>(Handed::Over(&At(index))) : Result<DLManagedTensor *>(status);
    });
  }

  /* Computes the outputs from what was set. */
  Instance &Run() {
    TryRun().OrThrow();
    return *this;
  }
  Status TryRun() noexcept {
    return internal::WithMemory([this] { return RunSlots(); });
  }

  /* Computes the outputs from these inputs, in the model's order. */
  Instance &Run(std::initializer_list<ConstTensor> inputs) {
    return Run(Span<const ConstTensor>(inputs.begin(), inputs.size()));
  }
  Status TryRun(std::initializer_list<ConstTensor> inputs) noexcept {
    return TryRun(Span<const ConstTensor>(inputs.begin(), inputs.size()));
  }
  Instance &Run(Span<const ConstTensor> inputs) {
    TryRun(inputs).OrThrow();
    return *this;
  }
  Status TryRun(Span<const ConstTensor> inputs) noexcept {
    return internal::WithMemory([&] { return RunGiven(inputs, nullptr); });
  }

  /* Computes these outputs from these inputs, both in the model's order. */
  Instance &Run(std::initializer_list<ConstTensor> inputs, std::initializer_list<Tensor> outputs) {
    return Run(Span<const ConstTensor>(inputs.begin(), inputs.size()),
               Span<const Tensor>(outputs.begin(), outputs.size()));
  }
  Status TryRun(std::initializer_list<ConstTensor> inputs, std::initializer_list<Tensor> outputs) noexcept {
    return TryRun(Span<const ConstTensor>(inputs.begin(), inputs.size()),
                  Span<const Tensor>(outputs.begin(), outputs.size()));
  }
  Instance &Run(Span<const ConstTensor> inputs, Span<const Tensor> outputs) {
    TryRun(inputs, outputs).OrThrow();
    return *this;
  }
  Status TryRun(Span<const ConstTensor> inputs, Span<const Tensor> outputs) noexcept {
    return internal::WithMemory([&] { return RunGiven(inputs, &outputs); });
  }

private:
  enum Side { kInput, kOutput };

  static constexpr std::size_t kAlignment = 64;

  struct FreeMemory {
    void operator()(void *memory) const noexcept {
      ::operator delete(memory, std::align_val_t(kAlignment));
    }
  };
  using Memory = std::unique_ptr<void, FreeMemory>;

  /* An input or an output: the tensor that a run without arguments passes, and the instance's memory, if it is there.
   */
  struct Slot {
    DLTensor tensor{};
    Memory memory;
    bool is_set = false;
  };

  /* An output that was handed over. */
  struct Handed {
    DLManagedTensor managed;
    Memory memory;
    std::vector<int64_t> shape;

    static DLManagedTensor *Over(Slot *slot) {
      auto handed = std::make_unique<Handed>();
      const DLTensor &tensor = slot->tensor;
      handed->shape.assign(tensor.shape, tensor.shape + tensor.ndim);
      handed->managed = {tensor, handed.get(), Delete};
      handed->managed.dl_tensor.shape = handed->shape.data();
      handed->memory = std::move(slot->memory);
      slot->is_set = false;
      return &handed.release()->managed;
    }
    static void Delete(DLManagedTensor *self) {
      delete static_cast<Handed *>(self->manager_ctx);
    }
  };

  struct Closed {
    Model model;
  };

  /* Keeps the model's code until the instance is gone. */
  struct Destroy {
    Model model;
    void operator()(RbInstance *instance) const noexcept {
      model.api()->destroy(instance);
    }
  };

  /* A view of something that ends with the statement is of no use to a later run. */
  template <class C> static constexpr void CheckLifetime() {
    static_assert(std::is_lvalue_reference_v<C> || !internal::kOwnsElements<C>,
                  "the memory of an input or output has to outlive the runs that use it");
  }

  explicit Instance(Closed closed) : model_(std::move(closed.model)), instance_(nullptr, Destroy{model_}) {
    const std::size_t inputs = model_.inputs().size(), count = inputs + model_.outputs().size();
    slots_.resize(count);
    given_.resize(count);
    pointers_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      slots_[i].tensor = rb_tensor(Info(static_cast<int32_t>(i)).c(), nullptr);
    }
  }

  Status Open(const Options &options) {
    const RbModelApi *api = model_.api();
    const RbCreateOptions asked{static_cast<uint32_t>(sizeof asked), options.threads, options.pool};
    if (options.pool && !rb_has_create_with(api)) {
      return Status(Errc::invalid_argument, "model " + internal::Quoted(model_.info().name) +
                                                " takes no thread pool: compile it again with this relaybuild");
    }
    RbInstance *made = nullptr;
    const RbStatus status = options.pool ? api->create_with(&asked, &made) : api->create(options.threads, &made);
    instance_.reset(made);
    return Told(status);
  }

  Status Told(RbStatus status) const {
    return status ? Status(static_cast<Errc>(status), model_.api()->last_error()) : Status();
  }

  int32_t num_inputs() const noexcept {
    return model_.info().num_inputs;
  }
  Slot &At(int32_t index) noexcept {
    return slots_[static_cast<std::size_t>(index)];
  }
  TensorInfo Info(int32_t index) const noexcept {
    const int32_t output = index - num_inputs();
    const RbModelInfo &info = model_.info();
    return TensorInfo(output < 0 ? &info.inputs[index] : &info.outputs[output]);
  }
  std::string Named(int32_t index) const {
    return (index < num_inputs() ? "input " : "output ") + internal::Quoted(Info(index).c()->name);
  }

  /* The slot of a key, in *index. */
  Status Find(Key key, Side side, int32_t *index) const {
    const TensorInfos infos = side == kInput ? model_.inputs() : model_.outputs();
    const int32_t found = key.Find(infos);
    *index = found + (side == kInput ? 0 : num_inputs());
    if (found >= 0) {
      return Status();
    }
    const std::string role = side == kInput ? "input" : "output";
    std::string names;
    for (const TensorInfo info : infos) {
      names += (names.empty() ? "" : ", ") + internal::Quoted(info.c()->name);
    }
    return Status(Errc::invalid_argument, "model " + internal::Quoted(model_.info().name) + " has no " + role + " " +
                                              key.Text() + ", its " + role +
                                              "s are: " + (names.empty() ? "none" : names));
  }

  Status CheckType(int32_t index, DLDataType type) const {
    const DLDataType wanted = Info(index).dtype();
    return internal::SameType(type, wanted)
               ? Status()
               : Status(Errc::invalid_tensor, Named(index) + " has dtype " + internal::TypeText(type) + ", expected " +
                                                  internal::TypeText(wanted));
  }

  /* Makes *out the tensor that `given` is for an input or output. */
  Status Resolve(int32_t index, const ConstTensor &given, DLTensor *out) const {
    const RbTensorInfo *info = Info(index).c();
    Status status = given.is_dlpack_ ? CheckDlpack(index, given.tensor_) : CheckElements(index, given);
    status = status.ok() ? CheckData(index, given.tensor_) : std::move(status);
    *out = given.tensor_;
    out->shape = const_cast<int64_t *>(info->shape);
    out->strides = nullptr;
    out->ndim = info->ndim;
    return status;
  }

  Status CheckElements(int32_t index, const ConstTensor &given) const {
    const TensorInfo info = Info(index);
    Status status = CheckType(index, given.tensor_.dtype);
    if (!status.ok()) {
      return status;
    }
    const bool fits = !given.has_shape_ || (given.shape_.size() == info.shape().size() &&
                                            std::equal(given.shape_.begin(), given.shape_.end(), info.shape().begin()));
    if (!fits) {
      return Status(Errc::invalid_tensor, Named(index) + " has shape " + internal::ShapeText(given.shape_) +
                                              ", expected " + internal::ShapeText(info.shape()));
    }
    if (given.count_ != info.size()) {
      return Status(Errc::invalid_tensor, Named(index) + " has " + std::to_string(given.count_) +
                                              " elements, expected " + std::to_string(info.size()) + " for shape " +
                                              internal::ShapeText(info.shape()));
    }
    return Status();
  }

  Status CheckDlpack(int32_t index, const DLTensor &tensor) const {
    if (tensor.device.device_type != kDLCPU) {
      return Status(Errc::invalid_tensor, Named(index) + " is on a device of DLPack type " +
                                              std::to_string(tensor.device.device_type) + ", expected the CPU (1)");
    }
    Status status = CheckType(index, tensor.dtype);
    return status.ok() ? CheckShape(index, tensor) : status;
  }

  Status CheckShape(int32_t index, const DLTensor &tensor) const {
    const TensorInfo info = Info(index);
    if (tensor.ndim < 0 || (tensor.ndim > 0 && !tensor.shape)) {
      return Status(Errc::invalid_tensor, Named(index) + " has " + std::to_string(tensor.ndim) + " dimensions and " +
                                              (tensor.shape ? "a" : "a null pointer as") + " shape");
    }
    const Span<const int64_t> shape(tensor.shape, static_cast<std::size_t>(tensor.ndim));
    if (!std::equal(shape.begin(), shape.end(), info.shape().begin(), info.shape().end())) {
      return Status(Errc::invalid_tensor, Named(index) + " has shape " + internal::ShapeText(shape) + ", expected " +
                                              internal::ShapeText(info.shape()));
    }
    if (info.size() && !internal::IsCompact(tensor)) {
      return Status(Errc::invalid_tensor, Named(index) + " has strides " +
                                              internal::ShapeText({tensor.strides, shape.size()}) +
                                              ", expected a row-major tensor without gaps");
    }
    return Status();
  }

  Status CheckData(int32_t index, const DLTensor &tensor) const {
    if (Info(index).size() && !tensor.data) {
      return Status(Errc::invalid_tensor, "the data of " + Named(index) + " is a null pointer");
    }
    const std::size_t alignment = internal::AlignmentOf(tensor.dtype);
    if (internal::AddressOf(tensor) % alignment) {
      return Status(Errc::invalid_tensor, "the data of " + Named(index) + " is not aligned to its element of " +
                                              std::to_string(alignment) + " bytes");
    }
    return Status();
  }

  Status Set(Key key, Side side, const ConstTensor &given) noexcept {
    return internal::WithMemory([&]() -> Status {
      int32_t index = 0;
      DLTensor tensor{};
      Status status = Find(key, side, &index);
      status = status.ok() ? Resolve(index, given, &tensor) : std::move(status);
      if (status.ok()) {
        Slot &slot = At(index);
        // who gives a view of the instance's memory has no other
        if (!OwnsData(index, tensor)) {
          slot.memory.reset();
        }
        slot.tensor = tensor;
        slot.is_set = true;
      }
      return status;
    });
  }

  /* Whether a tensor begins in the instance's memory for that input or output. */
  bool OwnsData(int32_t index, const DLTensor &tensor) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(At(index).memory.get());
    return begin && internal::AddressOf(tensor) - begin < std::max<std::size_t>(Info(index).bytes(), 1);
  }

  /* Gives a slot memory of the instance where it has none: neither that nor, unless `replace`, some that was set. */
  Status Allocate(int32_t index, bool replace) {
    Slot &slot = At(index);
    if (slot.memory || (slot.is_set && !replace)) {
      return Status();
    }
    const TensorInfo info = Info(index);
    const std::size_t bytes = info.bytes() ? info.bytes() : 1;
    slot.memory.reset(::operator new(bytes, std::align_val_t(kAlignment), std::nothrow));
    if (!slot.memory) {
      return Status(Errc::out_of_memory,
                    "out of memory for " + std::to_string(info.bytes()) + " bytes of " + Named(index));
    }
    std::memset(slot.memory.get(), 0, bytes);
    slot.tensor = rb_tensor(info.c(), slot.memory.get());
    slot.is_set = true;
    return Status();
  }

  template <class T> Status FindOwn(Key key, Side side, bool replace, int32_t *index) {
    Status status = Find(key, side, index);
    status = status.ok() ? CheckType(*index, DataTypeOf<T>::value) : std::move(status);
    return status.ok() ? Allocate(*index, replace) : status;
  }

  template <class T> Span<T> Elements(int32_t index) noexcept {
    const DLTensor &tensor = At(index).tensor;
    auto *bytes = static_cast<unsigned char *>(tensor.data);
    return {reinterpret_cast<T *>(bytes ? bytes + tensor.byte_offset : nullptr), Info(index).size()};
  }

  Status RunSlots() {
    for (int32_t i = 0; i < num_inputs(); ++i) {
      if (!At(i).is_set) {
        return Status(Errc::invalid_argument, Named(i) + " was not set before the run");
      }
      pointers_[static_cast<std::size_t>(i)] = &At(i).tensor;
    }
    Status status = UseOutputSlots();
    return status.ok() ? Call() : status;
  }

  Status UseOutputSlots() {
    for (std::size_t i = model_.inputs().size(); i < slots_.size(); ++i) {
      Status status = Allocate(static_cast<int32_t>(i), false);
      if (!status.ok()) {
        return status;
      }
      pointers_[i] = &slots_[i].tensor;
    }
    return Status();
  }

  Status RunGiven(Span<const ConstTensor> inputs, const Span<const Tensor> *outputs) {
    const std::size_t num_outputs = model_.outputs().size();
    if (inputs.size() != model_.inputs().size() || (outputs && outputs->size() != num_outputs)) {
      const std::size_t found = outputs ? outputs->size() : num_outputs;
      return Status(Errc::invalid_argument,
                    "run: got " + std::to_string(inputs.size()) + " inputs and " + std::to_string(found) +
                        " outputs, model " + internal::Quoted(model_.info().name) + " has " +
                        std::to_string(model_.inputs().size()) + " and " + std::to_string(num_outputs));
    }
    Status status;
    for (std::size_t i = 0; i < inputs.size() && status.ok(); ++i) {
      status = Give(i, inputs[i]);
    }
    for (std::size_t i = 0; outputs && i < num_outputs && status.ok(); ++i) {
      status = Give(inputs.size() + i, (*outputs)[i]);
    }
    if (status.ok() && !outputs) {
      status = UseOutputSlots();
    }
    return status.ok() ? Call() : status;
  }

  Status Give(std::size_t index, const ConstTensor &given) {
    pointers_[index] = &given_[index];
    return Resolve(static_cast<int32_t>(index), given, &given_[index]);
  }

  Status Call() {
    const RbModelInfo &info = model_.info();
    const auto inputs = const_cast<const DLTensor *const *>(pointers_.data());
    return Told(model_.api()->run(instance_.get(), inputs, info.num_inputs, pointers_.data() + info.num_inputs,
                                  info.num_outputs));
  }

  Model model_;
  std::unique_ptr<RbInstance, Destroy> instance_;
  std::vector<Slot> slots_; // inputs, then outputs, as all lists here
  std::vector<DLTensor> given_;
  std::vector<DLTensor *> pointers_;
};

} // namespace relaybuild

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/example_json_kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

namespace relaybuild::example_json {
namespace {

/* The type that arithmetic is done in: integers wrap around, which is defined for unsigned ones. */
template <class T, bool = std::is_integral_v<T>> struct ArithmeticType {
  using Type = T;
};
template <class T> struct ArithmeticType<T, true> {
  using Type = std::make_unsigned_t<T>;
};

template <class T> typename ArithmeticType<T>::Type Wrap(T x) {
  return static_cast<typename ArithmeticType<T>::Type>(x);
}

struct Add {
  template <class T> static T Apply(T a, T b) {
    return static_cast<T>(Wrap(a) + Wrap(b));
  }
};
struct Subtract {
  template <class T> static T Apply(T a, T b) {
    return static_cast<T>(Wrap(a) - Wrap(b));
  }
};
struct Multiply {
  template <class T> static T Apply(T a, T b) {
    return static_cast<T>(Wrap(a) * Wrap(b));
  }
};
/* Integers: towards zero; nothing divided by zero is zero, and the least number divided by -1 is itself. */
struct Divide {
  template <class T> static T Apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return b == 0 ? 0 : b == -1 ? static_cast<T>(0 - Wrap(a)) : static_cast<T>(a / b);
    } else {
      return a / b;
    }
  }
};
/* NaN where either is. */
struct Maximum {
  template <class T> static T Apply(T a, T b) {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  template <class T> static T Apply(T a, T b) {
    return a < b || a != a ? a : b;
  }
};

struct Copy {
  template <class T> static T Apply(T a) {
    return a;
  }
};
struct Relu {
  template <class T> static T Apply(T a) {
    return a < 0 ? 0 : a;
  }
};
struct Negative {
  template <class T> static T Apply(T a) {
    if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(0 - Wrap(a));
    } else {
      return -a;
    }
  }
};
struct Absolute {
  template <class T> static T Apply(T a) {
    if constexpr (std::is_integral_v<T>) {
      return a < 0 ? static_cast<T>(0 - Wrap(a)) : a;
    } else {
      return std::fabs(a);
    }
  }
};
/* NaN stays. */
struct Sign {
  template <class T> static T Apply(T a) {
    return a > 0 ? T{1} : a < 0 ? T{-1} : a == 0 ? T{0} : a;
  }
};
struct SquareRoot {
  template <class T> static T Apply(T a) {
    return std::sqrt(a);
  }
};
struct Floor {
  template <class T> static T Apply(T a) {
    return std::floor(a);
  }
};
struct Ceil {
  template <class T> static T Apply(T a) {
    return std::ceil(a);
  }
};
/* Half to even, in the rounding mode that processes start with. */
struct Round {
  template <class T> static T Apply(T a) {
    return std::nearbyint(a);
  }
};
struct Truncate {
  template <class T> static T Apply(T a) {
    return std::trunc(a);
  }
};

template <class F, class T>
void RunUnary(const void *const *operands, const std::array<int64_t, 2> &steps, void *result, int64_t count) {
  const T *__restrict a = static_cast<const T *>(operands[0]);
  T *__restrict out = static_cast<T *>(result);
  if (steps[0]) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = F::Apply(a[i]);
    }
  } else {
    const T value = F::Apply(*a);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = value;
    }
  }
}

/* One loop for each way in which the operands advance, so that compilers vectorise all of them. */
template <class F, class T>
void RunBinary(const void *const *operands, const std::array<int64_t, 2> &steps, void *result, int64_t count) {
  const T *__restrict a = static_cast<const T *>(operands[0]);
  const T *__restrict b = static_cast<const T *>(operands[1]);
  T *__restrict out = static_cast<T *>(result);
  if (steps[0] && steps[1]) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = F::Apply(a[i], b[i]);
    }
  } else if (steps[0]) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = F::Apply(a[i], *b);
    }
  } else if (steps[1]) {
    for (int64_t i = 0; i < count; ++i) {
      out[i] = F::Apply(*a, b[i]);
    }
  } else {
    const T value = F::Apply(*a, *b);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = value;
    }
  }
}

template <class F> Operator Unary(const char *name) {
  return {name, 1, true, {RunUnary<F, float>, RunUnary<F, double>, RunUnary<F, int32_t>, RunUnary<F, int64_t>}};
}

template <class F> Operator UnaryOfFloats(const char *name) {
  return {name, 1, true, {RunUnary<F, float>, RunUnary<F, double>, nullptr, nullptr}};
}

template <class F> Operator Binary(const char *name) {
  return {name, 2, true, {RunBinary<F, float>, RunBinary<F, double>, RunBinary<F, int32_t>, RunBinary<F, int64_t>}};
}

Operator Reshape() {
  Operator op = Unary<Copy>("reshape");
  op.keeps_shape = false;
  return op;
}

/* The strides by which an operand advances along each axis of the result, in elements. */
std::vector<int64_t> BroadcastStrides(const Shape &shape, const Operand &operand) {
  std::vector<int64_t> strides(shape.size(), 0);
  const Shape &own = *operand.shape;
  int64_t stride = 1;
  for (size_t i = 0; !operand.is_one_element && i < own.size(); ++i) {
    const int64_t extent = own[own.size() - 1 - i];
    strides[shape.size() - 1 - i] = extent == 1 ? 0 : stride;
    stride *= extent;
  }
  return strides;
}

bool IsWhole(const Operand &operand, int64_t count) {
  int64_t own = 1;
  for (const int64_t extent : *operand.shape) {
    own *= extent;
  }
  return !operand.is_one_element && own == count;
}

/* Whether `outer` goes on where `inner` ends, so that both are one loop. */
bool CanMerge(const LoopNest::Loop &outer, const LoopNest::Loop &inner) {
  return outer.strides[0] == inner.strides[0] * inner.count && outer.strides[1] == inner.strides[1] * inner.count;
}

} // namespace

const ElementTypeInfo &Describe(ElementType type) {
  static const std::array<ElementTypeInfo, kElementTypes> infos{
      {{"float32", 4, true}, {"float64", 8, true}, {"int32", 4, false}, {"int64", 8, false}}};
  return infos[static_cast<size_t>(type)];
}

const std::vector<Operator> &Operators() {
  static const std::vector<Operator> operators{Unary<Absolute>("abs"),
                                               Binary<Add>("add"),
                                               UnaryOfFloats<Ceil>("ceil"),
                                               Unary<Copy>("copy"),
                                               Binary<Divide>("div"),
                                               UnaryOfFloats<Floor>("floor"),
                                               Binary<Maximum>("max"),
                                               Binary<Minimum>("min"),
                                               Binary<Multiply>("mul"),
                                               Unary<Negative>("neg"),
                                               Unary<Relu>("relu"),
                                               Reshape(),
                                               UnaryOfFloats<Round>("round"),
                                               Unary<Sign>("sign"),
                                               UnaryOfFloats<SquareRoot>("sqrt"),
                                               Binary<Subtract>("sub"),
                                               UnaryOfFloats<Truncate>("trunc")};
  return operators;
}

const Operator *FindOperator(std::string_view name) {
  for (const Operator &op : Operators()) {
    if (name == op.name) {
      return &op;
    }
  }
  return nullptr;
}

LoopNest PlanLoops(const Shape &shape, const std::vector<Operand> &operands) {
  int64_t count = 1;
  for (const int64_t extent : shape) {
    count *= extent;
  }
  bool all_whole = true;
  for (const Operand &operand : operands) {
    all_whole = all_whole && (operand.is_one_element || IsWhole(operand, count));
  }
  LoopNest nest;
  if (all_whole || count == 0) {
    nest.inner = {count, {0, 0}};
    for (size_t i = 0; i < operands.size(); ++i) {
      nest.inner.strides[i] = operands[i].is_one_element ? 0 : 1;
    }
    return nest;
  }
  std::vector<std::vector<int64_t>> strides;
  for (const Operand &operand : operands) {
    strides.push_back(BroadcastStrides(shape, operand));
  }
  strides.resize(2, std::vector<int64_t>(shape.size(), 0));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    const LoopNest::Loop loop{shape[axis], {strides[0][axis], strides[1][axis]}};
    if (loop.count == 1) {
      continue;
    }
    if (!nest.outer.empty() && CanMerge(nest.outer.back(), loop)) {
      nest.outer.back() = {nest.outer.back().count * loop.count, loop.strides};
    } else {
      nest.outer.push_back(loop);
    }
  }
  nest.inner = nest.outer.back();
  nest.outer.pop_back();
  return nest;
}

void RunLoops(const LoopNest &loops, Kernel kernel, size_t element_bytes, std::array<const void *, 2> operands,
              void *result) {
  if (loops.inner.count == 0) {
    return;
  }
  const auto bytes = static_cast<int64_t>(element_bytes);
  std::vector<int64_t> position(loops.outer.size(), 0);
  std::array<const unsigned char *, 2> at{static_cast<const unsigned char *>(operands[0]),
                                          static_cast<const unsigned char *>(operands[1])};
  auto *out = static_cast<unsigned char *>(result);
  for (;;) {
    const std::array<const void *, 2> starts{at[0], at[1]};
    kernel(starts.data(), loops.inner.strides, out, loops.inner.count);
    out += loops.inner.count * bytes;
    size_t axis = loops.outer.size();
    for (; axis > 0; --axis) {
      const LoopNest::Loop &loop = loops.outer[axis - 1];
      const bool wraps = ++position[axis - 1] == loop.count;
      const int64_t steps = wraps ? 1 - loop.count : 1;
      for (size_t i = 0; i < at.size(); ++i) {
        at[i] += at[i] ? loop.strides[i] * steps * bytes : 0;
      }
      if (!wraps) {
        break;
      }
      position[axis - 1] = 0;
    }
    if (axis == 0) {
      return;
    }
  }
}

} // namespace relaybuild::example_json

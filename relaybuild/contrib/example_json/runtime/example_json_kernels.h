/* SPDX-License-Identifier: Apache-2.0
 *
 * The operators of ExampleJSON: element by element over broadcast tensors. Knows neither graphs nor their text. */
#ifndef RELAYBUILD_CONTRIB_EXAMPLE_JSON_KERNELS_H_
#define RELAYBUILD_CONTRIB_EXAMPLE_JSON_KERNELS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace relaybuild::example_json {

enum class ElementType { kFloat32, kFloat64, kInt32, kInt64 };

constexpr size_t kElementTypes = 4;

struct ElementTypeInfo {
  const char *name;
  size_t bytes;
  bool is_float;
};

const ElementTypeInfo &Describe(ElementType type);

using Shape = std::vector<int64_t>;

/* A loop over `count` elements of the result; the operands advance by 0 or 1 elements. */
using Kernel = void (*)(const void *const *operands, const std::array<int64_t, 2> &steps, void *result, int64_t count);

struct Operator {
  const char *name;
  size_t arity; /* 1 or 2 */
  bool keeps_shape;
  std::array<Kernel, kElementTypes> kernels; /* by element type; null where there is none */
};

/* All operators, by name. */
const std::vector<Operator> &Operators();

/* The operator of a name, or null. */
const Operator *FindOperator(std::string_view name);

/* Loops around a kernel, outermost first, that walk over the elements of a result in row-major order. */
struct LoopNest {
  struct Loop {
    int64_t count;
    std::array<int64_t, 2> strides; /* of the operands, in elements */
  };

  std::vector<Loop> outer;
  Loop inner; /* strides are 0 or 1 */
};

/* An operand as loops see it: its shape, or one element that stands for all. */
struct Operand {
  const Shape *shape;
  bool is_one_element;
};

/* The loops for a result of `shape`; the operands, one or two, broadcast to it, or have as many elements. */
LoopNest PlanLoops(const Shape &shape, const std::vector<Operand> &operands);

/* Computes all elements of a result, which shares no memory with the operands. */
void RunLoops(const LoopNest &loops, Kernel kernel, size_t element_bytes, std::array<const void *, 2> operands,
              void *result);

} // namespace relaybuild::example_json

#endif

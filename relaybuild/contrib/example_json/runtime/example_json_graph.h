/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs in the ExampleJSON format, read and checked. The format is described in the README.md of the backend's folder.
 * Knows neither modules nor how a graph is executed. */
#ifndef RELAYBUILD_CONTRIB_EXAMPLE_JSON_GRAPH_H_
#define RELAYBUILD_CONTRIB_EXAMPLE_JSON_GRAPH_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "example_json_kernels.h"

namespace relaybuild::example_json {

/* A tensor of a graph: an input, a constant, or what a step computes. */
struct Value {
  enum class Kind { kInput, kConstant, kComputed };

  Kind kind;
  std::string id; /* as it is written */
  ElementType type;
  Shape shape;
  size_t bytes;
  std::vector<unsigned char> data; /* of a constant: all elements, or one that stands for all */
};

struct Step {
  const Operator *op;
  std::vector<size_t> arguments; /* values */
  size_t result;                 /* a value */
  LoopNest loops;
};

/* Steps stand after those that they depend on. */
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Step> steps;
  std::vector<size_t> inputs;  /* values, in the order of the arguments */
  std::vector<size_t> outputs; /* values; one may stand several times, and need not be computed */
};

/* The graphs of a text, in its order. Throws relaybuild::Error, which names `origin` and the line at fault. */
std::vector<Graph> ParseGraphs(std::string_view text, const std::string &origin);

} // namespace relaybuild::example_json

#endif

// SPDX-License-Identifier: Apache-2.0
//
// Runs regions with oneDNN 2 or 3: makes primitives, lays values out, plans memory. Knows no program.
//
// A value has a plain form (row-major, the same bytes for every operand that views them with other axes) and forms that
// primitives asked for. Reorders stand where a form is missing; those of weights are apart and run once.
#include "runtime/dnnl_runtime.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <dnnl.hpp>

#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

#if DNNL_VERSION_MAJOR < 2
#error "relaybuild needs oneDNN 2 or later"
#endif

#if defined(__GNUC__)
// There where oneDNN was built for OpenMP.
extern "C" {
int omp_get_max_threads(void) __attribute__((weak));
void omp_set_num_threads(int) __attribute__((weak));
}
#endif

namespace {

using dnnl::memory;

constexpr std::size_t kAlignment = 64;

enum class Home { kInput, kOutput, kLiteral, kKept, kArena };

// Bytes that values lie in. `number` is the input's or output's; kept buffers live as long as the instance, those of
// the arena from step `first` to step `last`.
struct Buffer {
  Home home;
  int32_t number = 0;
  std::size_t bytes = 0;
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  std::size_t offset = 0;
  const void *literal = nullptr;
};

// A buffer, and how what is in it lies.
struct Place {
  int32_t buffer;
  memory::desc desc;
};

struct Argument {
  int id;
  Place place;
};

struct Step {
  dnnl::primitive primitive;
  std::vector<Argument> arguments;
  memory::desc scratchpad;
};

// How the elements of a value lie in a buffer.
struct Form {
  memory::desc desc;
  memory::dims shape;
  int32_t buffer;
};

struct Value {
  bool is_fixed = false; // a weight or a literal
  std::size_t bytes = 0;
  int32_t plain = -1; // the buffer of its row-major form
  std::vector<Form> forms;
  int32_t last_reader = -1; // the last operation that reads it
  std::vector<int32_t> outputs;
};

struct Plan {
  std::vector<Buffer> buffers;
  std::vector<Step> prepare; // once for the weights
  std::vector<Step> run;     // at every call
};

memory::dims shape_of(const RbDnnlOperand &operand) {
  return memory::dims(operand.shape, operand.shape + operand.rank);
}

memory::desc row_major(const memory::dims &shape, bool is_transposed = false) {
  memory::dims strides(shape.size());
  memory::dim stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= shape[axis];
  }
  if (is_transposed) {
    strides[shape.size() - 2] = 1;
    strides[shape.size() - 1] = shape[shape.size() - 2];
  }
  return memory::desc(shape, memory::data_type::f32, strides);
}

// An operand as it lies in the plain form of its value.
memory::desc plain_desc(const RbDnnlOperand &operand) {
  return row_major(shape_of(operand), operand.is_transposed != 0);
}

memory::desc any_desc(const RbDnnlOperand &operand) {
  return memory::desc(shape_of(operand), memory::data_type::f32, memory::format_tag::any);
}

void append_eltwise(dnnl::post_ops &ops, dnnl::algorithm algorithm, float alpha, float beta) {
#if DNNL_VERSION_MAJOR >= 3
  ops.append_eltwise(algorithm, alpha, beta);
#else
  ops.append_eltwise(1.0f, algorithm, alpha, beta);
#endif
}

void append_post_op(dnnl::post_ops &ops, const RbDnnlPostOp &op) {
  switch (op.kind) {
  case RB_DNNL_SUM:
    return ops.append_sum(1.0f);
  case RB_DNNL_RELU:
    return append_eltwise(ops, dnnl::algorithm::eltwise_relu, op.alpha, 0.0f);
  case RB_DNNL_CLIP:
    return append_eltwise(ops, dnnl::algorithm::eltwise_clip, op.alpha, op.beta);
  case RB_DNNL_SIGMOID:
    return append_eltwise(ops, dnnl::algorithm::eltwise_logistic, 0.0f, 0.0f);
  case RB_DNNL_TANH:
    return append_eltwise(ops, dnnl::algorithm::eltwise_tanh, 0.0f, 0.0f);
  case RB_DNNL_GELU:
    return append_eltwise(ops, dnnl::algorithm::eltwise_gelu_erf, 0.0f, 0.0f);
  case RB_DNNL_SWISH:
    return append_eltwise(ops, dnnl::algorithm::eltwise_swish, op.alpha, 0.0f);
  case RB_DNNL_LINEAR:
    return append_eltwise(ops, dnnl::algorithm::eltwise_linear, op.alpha, op.beta);
  }
}

dnnl::primitive_attr attributes_of(const RbDnnlOperation &operation) {
  dnnl::post_ops ops;
  for (int32_t number = 0; number < operation.num_post_ops; ++number)
    append_post_op(ops, operation.post_ops[number]);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(ops);
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attributes;
}

dnnl::convolution_forward::primitive_desc convolution(const RbDnnlOperation &operation, const dnnl::engine &engine) {
  const memory::desc src = any_desc(operation.src), weights = any_desc(operation.weights),
                     dst = any_desc(operation.dst);
  const memory::desc bias = operation.bias.rank ? plain_desc(operation.bias) : memory::desc();
  const memory::dims strides(operation.strides, operation.strides + 2);
  const memory::dims dilates = {operation.dilation[0] - 1, operation.dilation[1] - 1};
  const memory::dims before(operation.padding, operation.padding + 2);
  const memory::dims after(operation.padding + 2, operation.padding + 4);
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = dnnl::algorithm::convolution_direct;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kind, algorithm, src, weights, bias, dst, strides, dilates, before, after, attributes_of(operation)};
#else
  return {
      {kind, algorithm, src, weights, bias, dst, strides, dilates, before, after}, attributes_of(operation), engine};
#endif
}

dnnl::matmul::primitive_desc product(const RbDnnlOperation &operation, bool choose_weights,
                                     const dnnl::engine &engine) {
  const memory::desc src = plain_desc(operation.src), dst = plain_desc(operation.dst);
  const memory::desc weights = choose_weights ? any_desc(operation.weights) : plain_desc(operation.weights);
  const memory::desc bias = operation.bias.rank ? plain_desc(operation.bias) : memory::desc();
#if DNNL_VERSION_MAJOR >= 3
  return {engine, src, weights, bias, dst, attributes_of(operation)};
#else
  return {{src, weights, bias, dst}, attributes_of(operation), engine};
#endif
}

#if DNNL_VERSION_MAJOR >= 3
using Pooling = dnnl::pooling_forward;
#else
using Pooling = dnnl::pooling_v2_forward;
#endif

// Poolings take values as they lie: what reads and writes them has chosen already.
Pooling::primitive_desc pooling(const RbDnnlOperation &operation, const memory::desc &src, const dnnl::engine &engine) {
  const memory::desc dst = any_desc(operation.dst);
  const memory::dims strides(operation.strides, operation.strides + 2);
  const memory::dims window(operation.window, operation.window + 2);
  const memory::dims dilates = {operation.dilation[0] - 1, operation.dilation[1] - 1};
  const memory::dims before(operation.padding, operation.padding + 2);
  const memory::dims after(operation.padding + 2, operation.padding + 4);
  const auto kind = dnnl::prop_kind::forward_inference;
  const auto algorithm = operation.kind == RB_DNNL_MAX_POOLING ? dnnl::algorithm::pooling_max
                                                               : dnnl::algorithm::pooling_avg_exclude_padding;
#if DNNL_VERSION_MAJOR >= 3
  return {engine, kind, algorithm, src, dst, strides, window, dilates, before, after, attributes_of(operation)};
#else
  return {{kind, algorithm, src, dst, strides, window, dilates, before, after}, attributes_of(operation), engine};
#endif
}

// Turns the operations of a region into steps over buffers.
class Planner {
public:
  Planner(const RbDnnlRegion &region, const dnnl::engine &engine)
      : region_(region), engine_(engine), values_(static_cast<std::size_t>(region.num_values)) {
    keep_scratchpad_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  Plan run() {
    describe_values();
    for (current_ = 0; current_ < region_.num_operations; ++current_)
      add(region_.operations[current_]);
    copy_given();
    place_arena();
    return std::move(plan_);
  }

  std::size_t arena_bytes() const {
    return arena_bytes_;
  }

private:
  void describe_values() {
    for (int32_t number = 0; number < region_.num_values; ++number) {
      const RbDnnlValue &given = region_.values[number];
      Value &value = value_of(number);
      value.bytes = static_cast<std::size_t>(given.num_elements) * sizeof(float);
      value.is_fixed = given.source == RB_DNNL_WEIGHT || given.source == RB_DNNL_LITERAL;
      if (given.source == RB_DNNL_LITERAL)
        value.plain = new_buffer({Home::kLiteral, 0, value.bytes});
      else if (given.source != RB_DNNL_RESULT)
        value.plain = new_buffer({Home::kInput, number, value.bytes});
      if (given.source == RB_DNNL_LITERAL)
        plan_.buffers.back().literal = given.data;
    }
    for (int32_t number = 0; number < region_.num_outputs; ++number)
      value_of(region_.outputs[number]).outputs.push_back(number);
    for (int32_t number = 0; number < region_.num_operations; ++number)
      for (int32_t read : reads(region_.operations[number]))
        value_of(read).last_reader = number;
  }

  static std::vector<int32_t> reads(const RbDnnlOperation &operation, bool with_sum = true) {
    std::vector<int32_t> found;
    for (const RbDnnlOperand *operand : {&operation.src, &operation.weights, &operation.bias})
      if (operand->rank)
        found.push_back(operand->value);
    for (int32_t number = 0; with_sum && number < operation.num_post_ops; ++number)
      if (operation.post_ops[number].kind == RB_DNNL_SUM)
        found.push_back(operation.post_ops[number].value);
    return found;
  }

  void add(const RbDnnlOperation &operation) {
    switch (operation.kind) {
    case RB_DNNL_CONVOLUTION:
      add_weighted<dnnl::convolution_forward>(operation, convolution(operation, engine_));
      break;
    case RB_DNNL_PRODUCT:
      add_weighted<dnnl::matmul>(operation, product(operation, value_of(operation.weights.value).is_fixed, engine_));
      break;
    case RB_DNNL_MAX_POOLING:
    case RB_DNNL_MEAN_POOLING:
      add_pooling(operation);
      break;
    }
    copy_to_outputs(operation.dst);
  }

  // Outputs that no operation makes.
  void copy_given() {
    for (int32_t output = 0; output < region_.num_outputs; ++output) {
      const int32_t number = region_.outputs[output];
      if (region_.values[number].source == RB_DNNL_RESULT)
        continue;
      const memory::desc desc = row_major({region_.values[number].num_elements});
      const int32_t buffer = new_buffer({Home::kOutput, output, value_of(number).bytes});
      add_reorder(plan_.run, {value_of(number).plain, desc}, {buffer, desc});
    }
  }

  template <typename Primitive>
  void add_weighted(const RbDnnlOperation &operation, const typename Primitive::primitive_desc &desc) {
    const memory::desc src = desc.src_desc(), weights = desc.weights_desc(), dst = desc.dst_desc();
    Step step{Primitive(desc), {}, desc.scratchpad_desc()};
    step.arguments.push_back({DNNL_ARG_SRC, {buffer_in(operation.src, src), src}});
    step.arguments.push_back({DNNL_ARG_WEIGHTS, {buffer_in(operation.weights, weights), weights}});
    if (operation.bias.rank) {
      const memory::desc bias = plain_desc(operation.bias);
      step.arguments.push_back({DNNL_ARG_BIAS, {buffer_in(operation.bias, bias), bias}});
    }
    step.arguments.push_back({DNNL_ARG_DST, {result_buffer(operation, dst), dst}});
    add_step(plan_.run, std::move(step));
  }

  void add_pooling(const RbDnnlOperation &operation) {
    const Value &value = value_of(operation.src.value);
    const memory::dims shape = shape_of(operation.src);
    const Form *form = form_of(value, shape);
    const memory::desc src = form ? form->desc : row_major(shape);
    const auto desc = pooling(operation, src, engine_);
    const memory::desc dst = desc.dst_desc();
    Step step{Pooling(desc), {}, desc.scratchpad_desc()};
    step.arguments.push_back({DNNL_ARG_SRC, {buffer_in(operation.src, src), src}});
    step.arguments.push_back({DNNL_ARG_DST, {result_buffer(operation, dst), dst}});
    add_step(plan_.run, std::move(step));
  }

  // The buffer that an operation writes, which holds already what is summed into it.
  int32_t result_buffer(const RbDnnlOperation &operation, const memory::desc &desc) {
    const int32_t summed = summed_value(operation);
    if (summed < 0)
      return new_result(operation.dst, desc);
    RbDnnlOperand other = operation.dst;
    other.value = summed;
    const int32_t present = dying_buffer(operation, other, desc);
    if (present >= 0) {
      note_form(operation.dst, desc, present);
      return present;
    }
    const Place source = nearest(other);
    const int32_t buffer = new_result(operation.dst, desc);
    add_reorder(plan_.run, source, {buffer, desc});
    return buffer;
  }

  static int32_t summed_value(const RbDnnlOperation &operation) {
    for (int32_t number = 0; number < operation.num_post_ops; ++number)
      if (operation.post_ops[number].kind == RB_DNNL_SUM)
        return operation.post_ops[number].value;
    return -1;
  }

  // A buffer that holds a value in that form and that nothing reads any more; -1 if there is none.
  int32_t dying_buffer(const RbDnnlOperation &operation, const RbDnnlOperand &other, const memory::desc &desc) {
    const Value &value = value_of(other.value);
    const std::vector<int32_t> read = reads(operation, false);
    if (value.last_reader > current_ || std::find(read.begin(), read.end(), other.value) != read.end())
      return -1;
    for (const Form &form : value.forms)
      if (form.desc == desc && plan_.buffers[index(form.buffer)].home == Home::kArena)
        return form.buffer;
    if (value.plain >= 0 && desc == plain_desc(other) && plan_.buffers[index(value.plain)].home == Home::kArena)
      return value.plain;
    return -1;
  }

  // A buffer for the result of an operation: an output itself, where the primitive writes it row-major.
  int32_t new_result(const RbDnnlOperand &dst, const memory::desc &desc) {
    const Value &value = value_of(dst.value);
    int32_t buffer;
    if (desc == plain_desc(dst) && !value.outputs.empty())
      buffer = new_buffer({Home::kOutput, value.outputs.front(), value.bytes});
    else
      buffer = new_buffer({Home::kArena, 0, desc.get_size()});
    note_form(dst, desc, buffer);
    return buffer;
  }

  void note_form(const RbDnnlOperand &operand, const memory::desc &desc, int32_t buffer) {
    Value &value = value_of(operand.value);
    if (desc == plain_desc(operand))
      value.plain = buffer;
    else
      value.forms.push_back({desc, shape_of(operand), buffer});
  }

  void copy_to_outputs(const RbDnnlOperand &dst) {
    Value &value = value_of(dst.value);
    for (int32_t output : value.outputs) {
      const Place source = nearest(dst);
      const Buffer &present = plan_.buffers[index(source.buffer)];
      if (present.home == Home::kOutput && present.number == output)
        continue;
      const int32_t buffer = new_buffer({Home::kOutput, output, value.bytes});
      add_reorder(plan_.run, source, {buffer, plain_desc(dst)});
      if (value.plain < 0)
        value.plain = buffer;
    }
  }

  // The buffer with a value as an operand of that layout; steps that bring it there are added where it is missing.
  int32_t buffer_in(const RbDnnlOperand &operand, const memory::desc &desc) {
    Value &value = value_of(operand.value);
    if (desc == plain_desc(operand))
      return plain_buffer(operand.value);
    for (const Form &form : value.forms)
      if (form.desc == desc)
        return form.buffer;
    const Place source = nearest(operand);
    const int32_t buffer = new_buffer({value.is_fixed ? Home::kKept : Home::kArena, 0, desc.get_size()});
    add_reorder(value.is_fixed ? plan_.prepare : plan_.run, source, {buffer, desc});
    value.forms.push_back({desc, shape_of(operand), buffer});
    return buffer;
  }

  int32_t plain_buffer(int32_t number) {
    Value &value = value_of(number);
    if (value.plain >= 0)
      return value.plain;
    // only results have no plain form, and those have another from the operation that made them
    const Form form = value.forms.front();
    const int32_t buffer = new_buffer({Home::kArena, 0, value.bytes});
    add_reorder(plan_.run, {form.buffer, form.desc}, {buffer, row_major(form.shape)});
    value.plain = buffer;
    return buffer;
  }

  // A place of the value under the operand's axes: the plain one, unless there is none and another has these axes.
  Place nearest(const RbDnnlOperand &operand) {
    const Value &value = value_of(operand.value);
    const Form *form = value.plain < 0 ? form_of(value, shape_of(operand)) : nullptr;
    return form ? Place{form->buffer, form->desc} : Place{plain_buffer(operand.value), plain_desc(operand)};
  }

  static const Form *form_of(const Value &value, const memory::dims &shape) {
    for (const Form &form : value.forms)
      if (form.shape == shape)
        return &form;
    return nullptr;
  }

  void add_reorder(std::vector<Step> &steps, const Place &from, const Place &to) {
    const dnnl::reorder::primitive_desc desc(engine_, from.desc, engine_, to.desc, keep_scratchpad_);
    Step step{dnnl::reorder(desc), {}, desc.scratchpad_desc()};
    step.arguments = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    add_step(steps, std::move(step));
  }

  void add_step(std::vector<Step> &steps, Step step) {
    if (&steps == &plan_.run)
      for (const Argument &argument : step.arguments) {
        Buffer &buffer = plan_.buffers[index(argument.place.buffer)];
        buffer.first = std::min(buffer.first, steps.size());
        buffer.last = std::max(buffer.last, steps.size());
      }
    steps.push_back(std::move(step));
  }

  // First fit, by size: two buffers share bytes unless there is a step at which both are alive.
  void place_arena() {
    std::vector<Buffer *> waiting, placed;
    for (Buffer &buffer : plan_.buffers)
      if (buffer.home == Home::kArena || buffer.home == Home::kKept)
        waiting.push_back(&buffer);
    for (Buffer *buffer : waiting)
      if (buffer->home == Home::kKept) {
        buffer->first = 0;
        buffer->last = std::numeric_limits<std::size_t>::max();
      }
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const Buffer *a, const Buffer *b) { return a->bytes > b->bytes; });
    for (Buffer *buffer : waiting) {
      for (const Buffer *other : placed) { // by offset
        const bool apart = buffer->last < other->first || other->last < buffer->first;
        if (!apart && buffer->offset + buffer->bytes > other->offset)
          buffer->offset = std::max(buffer->offset, aligned(other->offset + other->bytes));
      }
      const auto by_offset = [](const Buffer *a, const Buffer *b) { return a->offset < b->offset; };
      placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer, by_offset), buffer);
      arena_bytes_ = std::max(arena_bytes_, aligned(buffer->offset + buffer->bytes));
    }
  }

  static std::size_t aligned(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  static std::size_t index(int32_t number) {
    return static_cast<std::size_t>(number);
  }

  Value &value_of(int32_t number) {
    return values_[index(number)];
  }

  int32_t new_buffer(Buffer buffer) {
    plan_.buffers.push_back(buffer);
    return static_cast<int32_t>(plan_.buffers.size() - 1);
  }

  const RbDnnlRegion &region_;
  const dnnl::engine &engine_;
  std::vector<Value> values_;
  Plan plan_;
  dnnl::primitive_attr keep_scratchpad_;
  int32_t current_ = 0;
  std::size_t arena_bytes_ = 0;
};

// Whether the calling thread has come out of a fork() in the child. GNU's OpenMP would let it wait for ever for threads
// that are only in the parent, unless it asks for none.
thread_local bool has_no_helpers = false;

#if defined(__unix__) || defined(__APPLE__)
[[maybe_unused]] const int watching_forks = pthread_atfork(nullptr, nullptr, [] { has_no_helpers = true; });
#endif

// While it lives, the calling thread asks OpenMP for no others than the call allows, and for none if there are none.
class ThreadLimit {
public:
#if defined(__GNUC__)
  ThreadLimit() {
    const int32_t allowed = has_no_helpers ? 1 : rb_threads_allowed();
    if (allowed && omp_get_max_threads && omp_set_num_threads) {
      before_ = omp_get_max_threads();
      omp_set_num_threads(allowed);
    }
  }
  ~ThreadLimit() {
    if (before_)
      omp_set_num_threads(before_);
  }
#else
  ThreadLimit() = default;
#endif
  ThreadLimit(const ThreadLimit &) = delete;
  ThreadLimit &operator=(const ThreadLimit &) = delete;

private:
  int before_ = 0;
};

struct FreeAligned {
  void operator()(unsigned char *bytes) const {
    ::operator delete[](bytes, std::align_val_t(kAlignment));
  }
};
using Bytes = std::unique_ptr<unsigned char[], FreeAligned>;

Bytes allocate(std::size_t bytes) {
  return Bytes(
      static_cast<unsigned char *>(::operator new[](std::max(bytes, kAlignment), std::align_val_t(kAlignment))));
}

// What an instance keeps for a region.
class Session {
public:
  explicit Session(const RbDnnlRegion &region)
      : region_(region), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
    Planner planner(region, engine_);
    const Plan plan = planner.run();
    arena_ = allocate(planner.arena_bytes());
    std::size_t scratch_bytes = 0;
    for (const auto *steps : {&plan.prepare, &plan.run})
      for (const Step &step : *steps)
        scratch_bytes = std::max(scratch_bytes, step.scratchpad.get_size());
    scratch_ = allocate(scratch_bytes);
    bind(plan, plan.prepare, prepare_);
    bind(plan, plan.run, run_);
  }

  void run(void *const *data) {
    for (Outside &outside : outside_)
      outside.place.set_data_handle(data[outside.number]);
    std::vector<const void *> weights = weights_at(data);
    if (weights != weights_ || !is_prepared_) {
      execute(prepare_);
      weights_ = std::move(weights);
      is_prepared_ = true;
    }
    execute(run_);
    stream_.wait();
  }

private:
  // The memory of an input or output, by its number among the arguments.
  struct Outside {
    memory place;
    int32_t number;
  };

  struct Bound {
    dnnl::primitive primitive;
    std::vector<memory> places; // what `arguments` points to
    std::vector<dnnl_exec_arg_t> arguments;
  };

  void bind(const Plan &plan, const std::vector<Step> &steps, std::vector<Bound> &bound) {
    for (const Step &step : steps) {
      Bound each{step.primitive, {}, {}};
      for (const Argument &argument : step.arguments)
        bind_argument(each, argument.id, memory_at(argument.place, plan));
      if (step.scratchpad.get_size())
        bind_argument(each, DNNL_ARG_SCRATCHPAD, memory(step.scratchpad, engine_, scratch_.get()));
      bound.push_back(std::move(each));
    }
  }

  static void bind_argument(Bound &bound, int id, const memory &place) {
    bound.places.push_back(place);
    bound.arguments.push_back({id, place.get()});
  }

  memory memory_at(const Place &place, const Plan &plan) {
    const Buffer &buffer = plan.buffers[static_cast<std::size_t>(place.buffer)];
    switch (buffer.home) {
    case Home::kLiteral:
      return memory(place.desc, engine_, const_cast<void *>(buffer.literal));
    case Home::kKept:
    case Home::kArena:
      return memory(place.desc, engine_, arena_.get() + buffer.offset);
    case Home::kInput:
    case Home::kOutput:
      break;
    }
    memory found(place.desc, engine_, nullptr);
    outside_.push_back({found, buffer.home == Home::kInput ? buffer.number : region_.num_inputs + buffer.number});
    return found;
  }

  // Where the weights lie: at another place they may be others.
  std::vector<const void *> weights_at(void *const *data) const {
    std::vector<const void *> found;
    for (int32_t number = 0; number < region_.num_inputs; ++number)
      if (region_.values[number].source == RB_DNNL_WEIGHT)
        found.push_back(data[number]);
    return found;
  }

  void execute(const std::vector<Bound> &steps) {
    for (const Bound &step : steps)
      dnnl::error::wrap_c_api(dnnl_primitive_execute(step.primitive.get(), stream_.get(),
                                                     static_cast<int>(step.arguments.size()), step.arguments.data()),
                              "could not execute a primitive");
  }

  const RbDnnlRegion &region_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  Bytes arena_;
  Bytes scratch_;
  std::vector<Bound> prepare_;
  std::vector<Bound> run_;
  std::vector<Outside> outside_;
  std::vector<const void *> weights_; // that `prepare_` was run for
  bool is_prepared_ = false;
};

// Runs `body`; what it throws becomes an error of a packed function.
template <typename Body> int32_t guarded(const Body &body) {
  try {
    const ThreadLimit limit;
    body();
    return 0;
  } catch (const dnnl::error &error) {
    if (error.status == dnnl_out_of_memory)
      return rb_raise("out of memory in a region computed by oneDNN");
    return rb_raise("oneDNN: %s (status %d)", error.message, static_cast<int>(error.status));
  } catch (const std::bad_alloc &) {
    return rb_raise("out of memory in a region computed by oneDNN");
  } catch (const std::exception &error) {
    return rb_raise("oneDNN: %s", error.what());
  }
}

// What `self` points to. Primitives that were made for several threads ask for these wherever they run.
struct Instance {
  std::unique_ptr<Session> session;
  bool is_serial;
};

} // namespace

int32_t rb_dnnl_create(const RbDnnlRegion *region, void **self) {
  *self = nullptr;
  return guarded([&] {
    auto instance = std::make_unique<Instance>();
    instance->session = std::make_unique<Session>(*region);
    instance->is_serial = has_no_helpers;
    *self = instance.release();
  });
}

void rb_dnnl_destroy(void *self) {
  delete static_cast<Instance *>(self);
}

int32_t rb_dnnl_run(const RbDnnlRegion *region, void *self, void *const *data) {
  return guarded([&] {
    if (!self)
      return Session(*region).run(data);
    Instance &instance = *static_cast<Instance *>(self);
    if (has_no_helpers && !instance.is_serial) {
      instance.session = std::make_unique<Session>(*region);
      instance.is_serial = true;
    }
    instance.session->run(data);
  });
}

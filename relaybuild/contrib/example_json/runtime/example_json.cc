/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/example_json.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include "runtime/example_json_graph.h"

namespace relaybuild::example_json {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kNowhere = std::numeric_limits<size_t>::max();

struct Free {
  void operator()(void *memory) const {
    std::free(memory);
  }
};
using Memory = std::unique_ptr<unsigned char, Free>;

DLDataType DataType(ElementType type) {
  const ElementTypeInfo &info = Describe(type);
  const auto code = static_cast<uint8_t>(info.is_float ? kDLFloat : kDLInt);
  return {code, static_cast<uint8_t>(info.bytes * 8), 1};
}

std::vector<Signature::Tensor> Tensors(const Graph &graph, const std::vector<size_t> &numbers) {
  std::vector<Signature::Tensor> tensors;
  for (const size_t number : numbers) {
    const Value &value = graph.values[number];
    tensors.push_back({value.id, DataType(value.type), value.shape});
  }
  return tensors;
}

/* Places of intermediate values in one piece of memory, which is used again once a value was read for the last time. */
class Plan {
public:
  /* A place for so many bytes. */
  size_t Take(size_t bytes) {
    const auto fits = [bytes](const Slot &slot) { return slot.is_free && slot.bytes >= bytes; };
    auto slot = slots_.end();
    for (auto each = slots_.begin(); each != slots_.end(); ++each) {
      if (fits(*each) && (slot == slots_.end() || each->bytes < slot->bytes)) {
        slot = each;
      }
    }
    if (slot == slots_.end()) {
      // no two slots begin at one place
      const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
      if (rounded > std::numeric_limits<size_t>::max() - total_) {
        throw Error("the intermediate values are too large for any memory");
      }
      slot = slots_.insert(slots_.end(), {total_, rounded, false});
      total_ += rounded;
    }
    slot->is_free = false;
    return slot->offset;
  }

  void GiveBack(size_t offset) {
    std::find_if(slots_.begin(), slots_.end(), [offset](const Slot &slot) { return slot.offset == offset; })->is_free =
        true;
  }

  size_t total() const {
    return total_;
  }

private:
  struct Slot {
    size_t offset, bytes;
    bool is_free;
  };

  std::vector<Slot> slots_;
  size_t total_ = 0;
};

} // namespace

/* A graph that can be executed. Each call has memory of its own, which later calls use again. */
class Program {
public:
  explicit Program(Graph graph)
      : graph_(std::move(graph)),
        signature_(graph_.name, Tensors(graph_, graph_.inputs), Tensors(graph_, graph_.outputs)),
        written_(graph_.values.size(), kNowhere), offsets_(graph_.values.size(), kNowhere) {
    for (size_t i = graph_.outputs.size(); i-- > 0;) {
      if (graph_.values[graph_.outputs[i]].kind == Value::Kind::kComputed) {
        written_[graph_.outputs[i]] = i;
      }
    }
    PlanMemory();
  }

  const std::string &name() const {
    return graph_.name;
  }
  const RbSignature &signature() const {
    return signature_.c();
  }

  void Call(const RbValue *args, int32_t num_args) const {
    const std::vector<void *> tensors = Unpack(signature(), args, num_args);
    Memory memory = TakeMemory();
    std::vector<unsigned char *> places = Places(tensors, memory.get());
    for (const Step &step : graph_.steps) {
      Execute(step.op->kernels, step.loops, step.arguments, step.result, places[step.result], places);
    }
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      CopyOutput(i, static_cast<unsigned char *>(tensors[graph_.inputs.size() + i]), places);
    }
    GiveBack(std::move(memory));
  }

private:
  /* A value that is the output of the graph is computed there; others live from their step to the last that reads them.
   */
  void PlanMemory() {
    std::vector<size_t> last(graph_.values.size(), kNowhere);
    for (size_t i = 0; i < graph_.steps.size(); ++i) {
      for (const size_t argument : graph_.steps[i].arguments) {
        last[argument] = i;
      }
    }
    Plan plan;
    for (size_t i = 0; i < graph_.steps.size(); ++i) {
      const Step &step = graph_.steps[i];
      if (written_[step.result] == kNowhere) {
        offsets_[step.result] = plan.Take(graph_.values[step.result].bytes);
      }
      for (const size_t argument : step.arguments) {
        if (last[argument] == i && offsets_[argument] != kNowhere) {
          plan.GiveBack(offsets_[argument]);
        }
      }
      if (last[step.result] == kNowhere && offsets_[step.result] != kNowhere) {
        plan.GiveBack(offsets_[step.result]);
      }
    }
    memory_bytes_ = plan.total();
  }

  /* Where each value lies. Constants are not written to, and neither are inputs. */
  std::vector<unsigned char *> Places(const std::vector<void *> &tensors, unsigned char *memory) const {
    std::vector<unsigned char *> places(graph_.values.size(), nullptr);
    for (size_t i = 0; i < places.size(); ++i) {
      if (graph_.values[i].kind == Value::Kind::kConstant) {
        places[i] = const_cast<unsigned char *>(graph_.values[i].data.data());
      } else if (written_[i] != kNowhere) {
        places[i] = static_cast<unsigned char *>(tensors[graph_.inputs.size() + written_[i]]);
      } else if (offsets_[i] != kNowhere) {
        places[i] = memory + offsets_[i];
      }
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      places[graph_.inputs[i]] = static_cast<unsigned char *>(tensors[i]);
    }
    return places;
  }

  void Execute(const std::array<Kernel, kElementTypes> &kernels, const LoopNest &loops,
               const std::vector<size_t> &arguments, size_t value, unsigned char *result,
               const std::vector<unsigned char *> &places) const {
    const ElementType type = graph_.values[value].type;
    const unsigned char *second = arguments.size() > 1 ? places[arguments[1]] : nullptr;
    RunLoops(loops, kernels[static_cast<size_t>(type)], Describe(type).bytes, {places[arguments[0]], second}, result);
  }

  /* An output that is an input or a constant, or stands a second time, is copied. */
  void CopyOutput(size_t index, unsigned char *result, const std::vector<unsigned char *> &places) const {
    const size_t number = graph_.outputs[index];
    const Value &value = graph_.values[number];
    if (written_[number] == index) {
      return;
    }
    const Operand operand{&value.shape, value.data.size() == Describe(value.type).bytes};
    Execute(FindOperator("copy")->kernels, PlanLoops(value.shape, {operand}), {number}, number, result, places);
  }

  Memory TakeMemory() const {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!idle_.empty()) {
        Memory memory = std::move(idle_.back());
        idle_.pop_back();
        return memory;
      }
    }
    if (memory_bytes_ == 0) {
      return nullptr;
    }
    Memory memory(static_cast<unsigned char *>(std::aligned_alloc(kAlignment, memory_bytes_)));
    if (!memory) {
      throw Error("out of memory: subgraph '" + graph_.name + "' needs " + std::to_string(memory_bytes_) +
                  " bytes for its intermediate values");
    }
    return memory;
  }

  void GiveBack(Memory memory) const {
    if (memory) {
      const std::lock_guard<std::mutex> lock(mutex_);
      idle_.push_back(std::move(memory));
    }
  }

  Graph graph_;
  Signature signature_;
  std::vector<size_t> written_; /* by value, the output that it is computed into */
  std::vector<size_t> offsets_; /* by value, its place in the memory of a call */
  size_t memory_bytes_ = 0;
  mutable std::mutex mutex_;
  mutable std::vector<Memory> idle_; /* of calls that have ended */
};

ExampleJsonModule::ExampleJsonModule(std::string text, const std::string &origin) : text_(std::move(text)) {
  for (Graph &graph : ParseGraphs(text_, origin)) {
    programs_.push_back(std::make_shared<const Program>(std::move(graph)));
  }
}

ExampleJsonModule::~ExampleJsonModule() = default;

const char *ExampleJsonModule::type_key() const {
  return "examplejson";
}

PackedFunc ExampleJsonModule::GetFunction(const std::string &name) {
  for (const std::shared_ptr<const Program> &program : programs_) {
    if (program->name() == name) {
      return PackedFunc([program](const RbValue *args, int32_t num_args, RbValue *) { program->Call(args, num_args); },
                        {program, &program->signature()});
    }
  }
  return PackedFunc();
}

std::vector<std::string> ExampleJsonModule::FunctionNames() const {
  std::vector<std::string> names;
  for (const std::shared_ptr<const Program> &program : programs_) {
    names.push_back(program->name());
  }
  return names;
}

std::string ExampleJsonModule::GetSource(const std::string &) const {
  return text_;
}

void ExampleJsonModule::SaveToBinary(std::string *out) const {
  *out += text_;
}

Module ExampleJsonModule::LoadFromBinary(const char *data, size_t size) {
  return Module(std::make_shared<ExampleJsonModule>(std::string(data, size)));
}

Module ExampleJsonModule::Create(const std::string &path) {
  return Module(std::make_shared<ExampleJsonModule>(ReadFile(path), path));
}

RELAYBUILD_REGISTER_BINARY_LOADER("examplejson", "USE_EXAMPLE_JSON", ExampleJsonModule::LoadFromBinary);
RELAYBUILD_REGISTER_FILE_LOADER("examplejson", ExampleJsonModule::Create);

/* Who asks a linker for this symbol has the loaders, also out of an archive, where nothing else names them. */
extern "C" const int rb_example_json_loader;
extern "C" const int rb_example_json_loader = 1;

} // namespace relaybuild::example_json

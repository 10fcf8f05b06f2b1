/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/example_json_graph.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <map>
#include <system_error>
#include <unordered_map>

#include "relaybuild/module.h"

namespace relaybuild::example_json {
namespace {

constexpr std::string_view kSubgraph = "subgraph", kInput = "input", kConstant = "const", kOutput = "output";

/* A tensor's bytes may be counted in a signed number of machine words. */
constexpr int64_t kMaxBytes = std::numeric_limits<std::ptrdiff_t>::max() / 2;

std::string Quoted(std::string_view text) {
  constexpr size_t longest = 40;
  std::string quoted = "'";
  for (const char c : text.substr(0, longest)) {
    const bool is_control = static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    quoted += is_control ? '?' : c;
  }
  return quoted + (text.size() > longest ? "...'" : "'");
}

std::string Text(const Shape &shape) {
  std::string text = "(";
  for (const int64_t extent : shape) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  }
  return text + (shape.size() == 1 ? ",)" : ")");
}

std::string OperatorNames() {
  std::string names;
  for (const Operator &op : Operators()) {
    names += (names.empty() ? "" : ", ") + std::string(op.name);
  }
  return names;
}

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

bool IsNumber(std::string_view word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), IsDigit);
}

/* A node's number without leading zeros. */
std::string Canonical(std::string_view number) {
  const size_t first = std::min(number.find_first_not_of('0'), number.size() - 1);
  return std::string(number.substr(first));
}

bool IsName(std::string_view word) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return is_letter(word.front()) &&
         std::all_of(word.begin(), word.end(), [&](char c) { return is_letter(c) || IsDigit(c) || c == '.'; });
}

bool IsKeyword(std::string_view word) {
  return word == kSubgraph || word == kInput || word == kConstant || word == kOutput || FindOperator(word);
}

bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

/* The words of a line up to a '#'. */
std::vector<std::string_view> Words(std::string_view line) {
  line = line.substr(0, line.find('#'));
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t start = at;
    while (at < line.size() && !IsSpace(line[at])) {
      ++at;
    }
    if (at > start) {
      words.push_back(line.substr(start, at - start));
    } else {
      ++at;
    }
  }
  return words;
}

/* A line's words: what it begins with, then what stands behind each `key:`. */
struct Statement {
  std::string_view keyword;
  std::vector<std::string_view> positional;
  std::map<std::string_view, std::vector<std::string_view>> clauses;
};

template <class T> bool Parse(std::string_view word, T *number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), *number);
  return error == std::errc() && end == word.data() + word.size();
}

/* A decimal or hexadecimal number, `inf` or `nan`; one that is too large for the type is refused. */
template <class T> bool ParseFloat(std::string_view word, T *number) {
  const bool is_negative = word.substr(0, 1) == "-";
  const std::string_view magnitude = word.substr(is_negative ? 1 : 0);
  const bool is_hexadecimal = magnitude.substr(0, 2) == "0x";
  const std::string_view digits = magnitude.substr(is_hexadecimal ? 2 : 0);
  if (digits.empty() || digits.front() == '-') {
    return false;
  }
  const char *const last = digits.data() + digits.size();
  const auto format = is_hexadecimal ? std::chars_format::hex : std::chars_format::general;
  const auto [end, error] = std::from_chars(digits.data(), last, *number, format);
  *number = is_negative ? -*number : *number;
  return error == std::errc() && end == last;
}

template <class T> bool Append(std::string_view word, std::vector<unsigned char> *data) {
  T number = 0;
  bool is_number;
  if constexpr (std::is_floating_point_v<T>) {
    is_number = ParseFloat(word, &number);
  } else {
    is_number = Parse(word, &number);
  }
  unsigned char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  data->insert(data->end(), bytes, bytes + sizeof number);
  return is_number;
}

bool AppendElement(std::string_view word, ElementType type, std::vector<unsigned char> *data) {
  switch (type) {
  case ElementType::kFloat32:
    return Append<float>(word, data);
  case ElementType::kFloat64:
    return Append<double>(word, data);
  case ElementType::kInt32:
    return Append<int32_t>(word, data);
  case ElementType::kInt64:
    return Append<int64_t>(word, data);
  }
  return false;
}

/* Reads a text line by line. */
class Parser {
public:
  Parser(std::string_view text, const std::string &origin) : text_(text), origin_(origin) {}

  std::vector<Graph> Run() {
    for (size_t start = 0; start < text_.size();) {
      const size_t end = std::min(text_.find('\n', start), text_.size());
      ++line_;
      ReadLine(Words(text_.substr(start, end - start)));
      start = end + 1;
    }
    FinishGraph();
    if (graphs_.empty()) {
      throw Error(origin_ + ": there is no subgraph, expected a line with the name of one");
    }
    return std::move(graphs_);
  }

private:
  [[noreturn]] void Fail(const std::string &message) const {
    throw Error(origin_ + ":" + std::to_string(line_) + ": " + message);
  }

  void ReadLine(const std::vector<std::string_view> &words) {
    if (words.empty()) {
      return;
    }
    if (words.size() == 1 && IsKeyword(words[0])) {
      Fail(Quoted(words[0]) + " stands alone, expected " + (words[0] == kSubgraph ? "a name" : "a number") +
           " behind it");
    }
    if (words.size() == 1 || (words.size() == 2 && words[0] == kSubgraph)) {
      BeginGraph(words.back());
      return;
    }
    if (graphs_.empty()) {
      Fail("a statement stands before any subgraph, expected a line with a subgraph's name first");
    }
    const Statement statement = Split(words);
    if (statement.keyword == kInput) {
      ReadInput(statement);
    } else if (statement.keyword == kConstant) {
      ReadConstant(statement);
    } else if (statement.keyword == kOutput) {
      ReadOutput(statement);
    } else {
      ReadOperation(statement);
    }
  }

  void BeginGraph(std::string_view name) {
    if (!IsName(name)) {
      Fail(Quoted(name) + " is neither a statement nor a subgraph's name, expected letters, digits, '_' and '.', no "
                          "digit first");
    }
    for (const Graph &graph : graphs_) {
      if (graph.name == name) {
        Fail("there are two subgraphs '" + graph.name + "', expected each name once");
      }
    }
    FinishGraph();
    graphs_.push_back({std::string(name), {}, {}, {}, {}});
    numbers_.clear();
  }

  /* Without outputs that are named, what the last operation computes is the output. */
  void FinishGraph() {
    if (graphs_.empty() || !graphs_.back().outputs.empty()) {
      return;
    }
    Graph &graph = graphs_.back();
    if (graph.steps.empty()) {
      Fail("subgraph '" + graph.name + "' ends here and computes nothing, expected an operation or an 'output' before");
    }
    graph.outputs.push_back(graph.steps.back().result);
  }

  /* `<id> <keyword>` and `<keyword> <id>` are the same. */
  Statement Split(std::vector<std::string_view> words) const {
    if (IsNumber(words[0])) {
      std::swap(words[0], words[1]);
    }
    Statement statement{words[0], {}, {}};
    if (!IsKeyword(words[0]) || words[0] == kSubgraph) {
      Fail("there is no operator " + Quoted(words[0]) + ", expected input, const, output or one of " + OperatorNames());
    }
    std::vector<std::string_view> *target = &statement.positional;
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i].back() != ':') {
        target->push_back(words[i]);
        continue;
      }
      const auto [clause, is_new] = statement.clauses.try_emplace(words[i].substr(0, words[i].size() - 1));
      if (!is_new) {
        Fail(Quoted(words[i]) + " stands twice");
      }
      target = &clause->second;
    }
    return statement;
  }

  void ExpectClauses(const Statement &statement, const std::vector<std::string_view> &allowed) const {
    for (const auto &[name, words] : statement.clauses) {
      if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
        std::string expected;
        for (const std::string_view each : allowed) {
          expected += (expected.empty() ? "'" : ", '") + std::string(each) + ":'";
        }
        Fail(Quoted(statement.keyword) + " has no " + Quoted(std::string(name) + ":") + ", expected " +
             (expected.empty() ? "nothing of the kind" : expected));
      }
    }
  }

  const std::vector<std::string_view> &Clause(const Statement &statement, std::string_view name) const {
    const auto found = statement.clauses.find(name);
    if (found == statement.clauses.end()) {
      Fail(Quoted(statement.keyword) + " lacks '" + std::string(name) + ":'");
    }
    return found->second;
  }

  std::string ReadId(const Statement &statement) const {
    if (statement.positional.empty() || !IsNumber(statement.positional[0])) {
      Fail("expected the number of a node behind " + Quoted(statement.keyword) + ", found " +
           (statement.positional.empty() ? "none" : Quoted(statement.positional[0])));
    }
    const std::string id = Canonical(statement.positional[0]);
    const auto found = numbers_.find(id);
    if (found != numbers_.end()) {
      Fail("there are two nodes " + Quoted(id) + ", the first is in line " + std::to_string(found->second.line));
    }
    return id;
  }

  Shape ReadShape(const std::string_view *first, const std::string_view *last) const {
    Shape shape;
    for (; first != last; ++first) {
      int64_t extent = 0;
      if (!IsNumber(*first) || !Parse(*first, &extent)) {
        Fail("expected an extent, a number of 0 to 9223372036854775807, found " + Quoted(*first));
      }
      shape.push_back(extent);
    }
    return shape;
  }

  Shape ReadShape(const std::vector<std::string_view> &words, size_t skip) const {
    return ReadShape(words.data() + skip, words.data() + words.size());
  }

  ElementType ReadType(const Statement &statement, ElementType otherwise) const {
    const auto found = statement.clauses.find("dtype");
    if (found == statement.clauses.end()) {
      return otherwise;
    }
    for (size_t i = 0; i < kElementTypes; ++i) {
      const auto type = static_cast<ElementType>(i);
      if (found->second.size() == 1 && found->second[0] == Describe(type).name) {
        return type;
      }
    }
    Fail("expected float32, float64, int32 or int64 behind 'dtype:', found " +
         (found->second.empty() ? "nothing" : Quoted(found->second[0])));
  }

  /* The number of elements, all bytes of which can be counted; extents of 0 do not excuse others. */
  int64_t CountElements(const Shape &shape, ElementType type) const {
    int64_t count = 1, bound = static_cast<int64_t>(Describe(type).bytes);
    for (const int64_t extent : shape) {
      if (extent > 0 && bound > kMaxBytes / extent) {
        Fail("a tensor of shape " + Text(shape) + " and dtype " + Describe(type).name + " is too large for any memory");
      }
      bound *= std::max<int64_t>(extent, 1);
      count *= extent;
    }
    return count;
  }

  size_t AddValue(Value::Kind kind, const std::string &id, ElementType type, Shape shape) {
    Graph &graph = graphs_.back();
    const auto bytes = static_cast<size_t>(CountElements(shape, type)) * Describe(type).bytes;
    graph.values.push_back({kind, id, type, std::move(shape), bytes, {}});
    numbers_[id] = {graph.values.size() - 1, line_};
    return graph.values.size() - 1;
  }

  void ReadInput(const Statement &statement) {
    ExpectClauses(statement, {"dtype"});
    const std::string id = ReadId(statement);
    const ElementType type = ReadType(statement, ElementType::kFloat32);
    graphs_.back().inputs.push_back(AddValue(Value::Kind::kInput, id, type, ReadShape(statement.positional, 1)));
  }

  void ReadConstant(const Statement &statement) {
    ExpectClauses(statement, {"dtype", "value"});
    const std::string id = ReadId(statement);
    const ElementType type = ReadType(statement, ElementType::kFloat32);
    const Shape shape = ReadShape(statement.positional, 1);
    const std::vector<std::string_view> &words = Clause(statement, "value");
    const int64_t count = CountElements(shape, type);
    if (words.size() != 1 && static_cast<uint64_t>(count) != words.size()) {
      Fail("expected " + std::to_string(count) + " numbers behind 'value:', or one for all, found " +
           std::to_string(words.size()));
    }
    std::vector<unsigned char> data;
    for (const std::string_view word : words) {
      if (!AppendElement(word, type, &data)) {
        Fail(Quoted(word) + " is no number that dtype " + Describe(type).name + " can hold");
      }
    }
    graphs_.back().values[AddValue(Value::Kind::kConstant, id, type, shape)].data = std::move(data);
  }

  size_t FindValue(std::string_view word) const {
    const auto found = IsNumber(word) ? numbers_.find(Canonical(word)) : numbers_.end();
    if (found == numbers_.end()) {
      Fail("there is no node " + Quoted(word) + " before this line");
    }
    return found->second.value;
  }

  void ReadOutput(const Statement &statement) {
    ExpectClauses(statement, {});
    for (const std::string_view word : statement.positional) {
      graphs_.back().outputs.push_back(FindValue(word));
    }
  }

  void ReadOperation(const Statement &statement) {
    ExpectClauses(statement, {"inputs", "shape", "dtype"});
    const Operator *op = FindOperator(statement.keyword);
    const std::string id = ReadId(statement);
    if (statement.positional.size() > 1) {
      Fail("expected 'inputs:' behind the node's number, found " + Quoted(statement.positional[1]));
    }
    std::vector<size_t> arguments;
    for (const std::string_view word : Clause(statement, "inputs")) {
      arguments.push_back(FindValue(word));
    }
    const ElementType type = CheckArguments(*op, arguments);
    if (ReadType(statement, type) != type) {
      Fail("the result has dtype " + std::string(Describe(type).name) + " as its inputs have, expected no other");
    }
    const Shape shape = ReadShape(Clause(statement, "shape"), 0);
    CountElements(shape, type);
    CheckShape(*op, arguments, shape);
    AddStep(op, std::move(arguments), id, type, shape);
  }

  void AddStep(const Operator *op, std::vector<size_t> arguments, const std::string &id, ElementType type,
               const Shape &shape) {
    std::vector<Operand> operands;
    for (const size_t argument : arguments) {
      const Value &value = graphs_.back().values[argument];
      operands.push_back({&value.shape, value.data.size() == Describe(type).bytes});
    }
    LoopNest loops = PlanLoops(shape, operands);
    const size_t result = AddValue(Value::Kind::kComputed, id, type, shape);
    graphs_.back().steps.push_back({op, std::move(arguments), result, std::move(loops)});
  }

  /* The dtype that all arguments have. */
  ElementType CheckArguments(const Operator &op, const std::vector<size_t> &arguments) const {
    if (arguments.size() != op.arity) {
      Fail(Quoted(op.name) + " takes " + std::to_string(op.arity) + " inputs, found " +
           std::to_string(arguments.size()));
    }
    const std::vector<Value> &values = graphs_.back().values;
    const ElementType type = values[arguments[0]].type;
    for (const size_t argument : arguments) {
      if (values[argument].type != type) {
        Fail("the inputs have dtypes " + std::string(Describe(type).name) + " and " +
             Describe(values[argument].type).name + ", expected one dtype");
      }
    }
    if (!op.kernels[static_cast<size_t>(type)]) {
      Fail(Quoted(op.name) + " takes float32 and float64, found " + Describe(type).name);
    }
    return type;
  }

  void CheckShape(const Operator &op, const std::vector<size_t> &arguments, const Shape &shape) const {
    const std::vector<Value> &values = graphs_.back().values;
    if (!op.keeps_shape) {
      const Value &argument = values[arguments[0]];
      if (CountElements(argument.shape, argument.type) != CountElements(shape, argument.type)) {
        Fail("shape " + Text(shape) + " has not as many elements as that of the input, " + Text(argument.shape));
      }
      return;
    }
    Shape expected = values[arguments[0]].shape;
    for (size_t i = 1; i < arguments.size(); ++i) {
      expected = BroadcastShape(expected, values[arguments[i]].shape);
    }
    if (shape != expected) {
      Fail("the result has shape " + Text(expected) + ", found " + Text(shape) + " behind 'shape:'");
    }
  }

  Shape BroadcastShape(const Shape &a, const Shape &b) const {
    Shape result(std::max(a.size(), b.size()), 1);
    for (size_t i = 0; i < result.size(); ++i) {
      const int64_t from_a = i < a.size() ? a[a.size() - 1 - i] : 1, from_b = i < b.size() ? b[b.size() - 1 - i] : 1;
      if (from_a != from_b && from_a != 1 && from_b != 1) {
        Fail("the inputs have shapes " + Text(a) + " and " + Text(b) + ", which cannot be broadcast together");
      }
      result[result.size() - 1 - i] = from_a == 1 ? from_b : from_a;
    }
    return result;
  }

  struct Numbered {
    size_t value;
    size_t line;
  };

  std::string_view text_;
  const std::string &origin_;
  size_t line_ = 0;
  std::vector<Graph> graphs_;
  std::unordered_map<std::string, Numbered> numbers_; /* of the current graph */
};

} // namespace

std::vector<Graph> ParseGraphs(std::string_view text, const std::string &origin) {
  return Parser(text, origin).Run();
}

} // namespace relaybuild::example_json

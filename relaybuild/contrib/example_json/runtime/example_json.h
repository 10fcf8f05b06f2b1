/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules of the type `examplejson`: graphs in the ExampleJSON format, executed as they stand. Knows no compiler. */
#ifndef RELAYBUILD_CONTRIB_EXAMPLE_JSON_H_
#define RELAYBUILD_CONTRIB_EXAMPLE_JSON_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "relaybuild/module.h"

namespace relaybuild::example_json {

class Program;

/* Each subgraph is a function of its name. */
class ExampleJsonModule final : public ModuleNode {
public:
  /* Reads a text; `origin` stands before the lines' numbers in errors. Throws Error. */
  explicit ExampleJsonModule(std::string text, const std::string &origin = "ExampleJSON");
  ~ExampleJsonModule() override;

  const char *type_key() const override;
  PackedFunc GetFunction(const std::string &name) override;
  std::vector<std::string> FunctionNames() const override;
  /* The text, in whatever format. */
  std::string GetSource(const std::string &format = "") const override;
  void SaveToBinary(std::string *out) const override;

  /* The module of a text that SaveToBinary() wrote. Throws Error. */
  static Module LoadFromBinary(const char *data, size_t size);
  /* The module of the text in a file. Throws Error. */
  static Module Create(const std::string &path);

private:
  std::string text_;
  std::vector<std::shared_ptr<const Program>> programs_;
};

} // namespace relaybuild::example_json

#endif

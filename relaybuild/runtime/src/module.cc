/* SPDX-License-Identifier: Apache-2.0
 *
 * Modules: the frame around their bytes, the registry of loaders, shared libraries as modules, and the calls of a
 * library's regions that modules compute. Knows no kind of module by name but the library. */
#include "relaybuild/module.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include <dlfcn.h>
#include <sys/stat.h>
#if defined(__ELF__)
#include <elf.h>
#endif

extern "C" {
#include "relaybuild/checks.h"
}

namespace relaybuild {
namespace {

constexpr char kMagic[] = "\x89RBLOB\r\n";
constexpr size_t kMagicBytes = sizeof kMagic - 1;
constexpr uint32_t kFrameVersion = 1;
constexpr size_t kHeadBytes = kMagicBytes + 3 * 4 + 8;
constexpr size_t kChecksumBytes = 4;

constexpr char kBinaryPrefix[] = "runtime.module.loadbinary_";
constexpr char kFilePrefix[] = "runtime.module.loadfile_";
constexpr char kLibraryFormat[] = "so";

/* Formats of files whose loaders come with a backend of this release, and the switch of config.cmake that brings each.
 */
constexpr std::pair<const char *, const char *> kFormatFlags[] = {{"examplejson", "USE_EXAMPLE_JSON"}};

std::string Quoted(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names) {
    text += (text.empty() ? "'" : ", '") + name + "'";
  }
  return text.empty() ? "none" : text;
}

void AppendNumber(std::string *out, uint64_t number, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) {
    out->push_back(static_cast<char>(number >> 8 * i & 0xff));
  }
}

uint64_t NumberAt(std::string_view data, size_t offset, size_t bytes) {
  uint64_t number = 0;
  for (size_t i = 0; i < bytes; ++i) {
    number |= static_cast<uint64_t>(static_cast<unsigned char>(data[offset + i])) << 8 * i;
  }
  return number;
}

std::array<uint32_t, 256> ChecksumTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < table.size(); ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) {
      value = value & 1 ? value >> 1 ^ UINT32_C(0xedb88320) : value >> 1;
    }
    table[i] = value;
  }
  return table;
}

uint32_t Checksum(std::string_view data) {
  static const std::array<uint32_t, 256> table = ChecksumTable();
  uint32_t value = UINT32_MAX;
  for (const char byte : data) {
    value = table[(value ^ static_cast<unsigned char>(byte)) & 0xff] ^ value >> 8;
  }
  return ~value;
}

bool IsFrame(std::string_view data) {
  return data.substr(0, kMagicBytes) == std::string_view(kMagic, kMagicBytes);
}

struct BinaryEntry {
  std::string flag;
  BinaryLoader loader;
};

/* Every loader of this program or library, by type key. */
struct Registry {
  std::mutex mutex;
  std::map<std::string, BinaryEntry> binary;
  std::map<std::string, FileLoader> file;
};

/* Made when first asked for: registrations run before main() in any order. */
Registry &TheRegistry() {
  static Registry registry;
  return registry;
}

template <class Entry> bool Find(const std::map<std::string, Entry> &loaders, const std::string &key, Entry *out) {
  const std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  const auto found = loaders.find(key);
  if (found == loaders.end()) {
    return false;
  }
  *out = found->second;
  return true;
}

template <class Entry> std::vector<std::string> Keys(const std::map<std::string, Entry> &loaders) {
  const std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  std::vector<std::string> keys;
  for (const auto &entry : loaders) {
    keys.push_back(entry.first);
  }
  return keys;
}

std::string FlagAdvice(const std::string &flag) {
  return flag.empty() ? "link the runtime of its backend" : "build with " + flag + "=ON, which brings one";
}

Module LoadPayload(const Blob &blob) {
  BinaryEntry entry;
  if (!Find(TheRegistry().binary, blob.type_key, &entry)) {
    throw Error("there is no loader '" + std::string(kBinaryPrefix) + blob.type_key + "' for a module of type '" +
                blob.type_key + "': " + FlagAdvice(blob.flag) +
                " (loaders that are there: " + Quoted(Keys(TheRegistry().binary)) + ")");
  }
  return entry.loader(blob.payload.data(), blob.payload.size());
}

/* An open shared library. */
class Library {
public:
  explicit Library(const std::string &path) : path_(path) {
    const std::string spelling = FreshSpelling(path);
    handle_ = dlopen(spelling.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle_) {
      const char *told = dlerror();
      std::string reason = told ? told : "no reason given";
      // the loader names the file as it was spelled for it, which tells a reader nothing
      if (reason.compare(0, spelling.size() + 2, spelling + ": ") == 0) {
        reason.erase(0, spelling.size() + 2);
      }
      throw Error("'" + path + "' cannot be loaded as a shared library: " + reason);
    }
  }
  Library(const Library &) = delete;
  Library &operator=(const Library &) = delete;
  ~Library() {
    dlclose(handle_);
  }

  /* The symbol as a pointer to a function, null where there is none. */
  template <class Function> Function Symbol(const std::string &name) const {
    void *const symbol = dlsym(handle_, name.c_str());
    Function function = nullptr;
    static_assert(sizeof function == sizeof symbol, "a symbol is the address of a function");
    std::memcpy(&function, &symbol, sizeof function);
    return function;
  }

  const std::string &path() const {
    return path_;
  }

  /* Why the calling thread's last call failed. */
  std::string LastError() const {
    const auto last_error = Symbol<RbLastError>(RELAYBUILD_LAST_ERROR_ENTRY);
    const std::string text = last_error ? last_error() : "";
    return text.empty() ? "a function of '" + path_ + "' failed and gave no reason" : text;
  }

private:
  /* A spelling of the path that this process has not yet used: a loader that knows a name returns the library it
   * loaded under it, even if another file has taken its place. The bits of a counter stand as "/." or "/" before the
   * last part; the same file is still recognised, by its inode. */
  static std::string FreshSpelling(const std::string &path) {
    static std::atomic<uint32_t> counter{0};
    const std::string full = path.find('/') == std::string::npos ? "./" + path : path;
    const size_t folder = full.rfind('/');
    std::string spelling = full.substr(0, folder);
    for (uint32_t bits = ++counter; bits > 1; bits >>= 1) {
      spelling += bits & 1 ? "/." : "/";
    }
    return spelling + full.substr(folder);
  }

  std::string path_;
  void *handle_;
};

PackedFunc LibraryFunction(const std::shared_ptr<Library> &library, const std::string &name,
                           std::shared_ptr<const RbSignature> signature) {
  const auto function = library->Symbol<RbPackedFunction>("__tvm_ffi_" + name);
  if (!function) {
    return PackedFunc();
  }
  return PackedFunc(
      [library, function](const RbValue *args, int32_t num_args, RbValue *result) {
        if (function(nullptr, args, num_args, result)) {
          throw Error(library->LastError());
        }
      },
      std::move(signature));
}

/* The functions of a shared library that one of its modules brings; the library itself is the module of number 0. */
class LibraryModule : public ModuleNode {
public:
  LibraryModule(std::shared_ptr<Library> library, std::string type_key, std::vector<const RbRegion *> regions)
      : library_(std::move(library)), type_key_(std::move(type_key)), regions_(std::move(regions)) {}

  const char *type_key() const override {
    return type_key_.c_str();
  }

  PackedFunc GetFunction(const std::string &name) override {
    for (const RbRegion *region : regions_) {
      if (name == region->signature->name) {
        return LibraryFunction(library_, name, {library_, region->signature});
      }
    }
    return PackedFunc();
  }

  std::vector<std::string> FunctionNames() const override {
    std::vector<std::string> names;
    for (const RbRegion *region : regions_) {
      names.emplace_back(region->signature->name);
    }
    return names;
  }

protected:
  const std::shared_ptr<Library> &library() const {
    return library_;
  }

private:
  std::shared_ptr<Library> library_;
  std::string type_key_;
  std::vector<const RbRegion *> regions_;
};

/* A whole shared library. */
class RootModule final : public LibraryModule {
public:
  RootModule(std::shared_ptr<Library> library, std::string type_key, std::vector<const RbRegion *> regions,
             const RbModelApi *model)
      : LibraryModule(std::move(library), std::move(type_key), std::move(regions)), model_(model) {
    if (model) {
      const RbModelInfo *info = model->describe();
      main_ = std::make_shared<const RbSignature>(
          RbSignature{"main", info->num_inputs, info->num_outputs, info->inputs, info->outputs});
    }
  }

  PackedFunc GetFunction(const std::string &name) override {
    PackedFunc own = LibraryModule::GetFunction(name);
    return own ? own : LibraryFunction(library(), name, name == "main" ? main_ : nullptr);
  }

  std::vector<std::string> FunctionNames() const override {
    std::vector<std::string> names = LibraryModule::FunctionNames();
    if (library()->Symbol<RbPackedFunction>("__tvm_ffi_main")) {
      names.insert(names.begin(), "main");
    }
    return names;
  }

  void SaveToBinary(std::string *out) const override {
    *out += ReadFile(library()->path());
  }

  std::shared_ptr<const RbModelApi> model() const override {
    return model_ ? std::shared_ptr<const RbModelApi>(library(), model_) : nullptr;
  }

private:
  const RbModelApi *model_;
  std::shared_ptr<const RbSignature> main_;
};

const RbModelApi *FindModel(const Library &library) {
  const auto entry = library.Symbol<RbModelEntry>(RELAYBUILD_MODEL_ENTRY);
  const RbModelApi *model = entry ? entry() : nullptr;
  if (model && model->abi_version != RELAYBUILD_ABI_VERSION) {
    throw Error("'" + library.path() + "' has interface version " + std::to_string(model->abi_version) +
                ", this relaybuild reads version " + std::to_string(RELAYBUILD_ABI_VERSION) +
                ": compile the model again");
  }
  return model;
}

const RbLibrary *FindTable(const Library &library) {
  const auto entry = library.Symbol<RbLibraryEntry>(RELAYBUILD_LIBRARY_ENTRY);
  const RbLibrary *table = entry ? entry() : nullptr;
  if (table && table->abi_version != RELAYBUILD_ABI_VERSION) {
    throw Error("'" + library.path() + "' has a table of regions of version " + std::to_string(table->abi_version) +
                ", this relaybuild reads version " + std::to_string(RELAYBUILD_ABI_VERSION) +
                ": compile the model again");
  }
  return table;
}

/* The tree of modules that a library's table describes; parents stand before the modules that they import. */
Module MakeTree(const std::shared_ptr<Library> &library, const RbLibrary *table, const RbModelApi *model) {
  const int32_t count = table ? table->num_modules : 1;
  std::vector<std::vector<const RbRegion *>> regions(static_cast<size_t>(count));
  for (int32_t i = 0; table && i < table->num_regions; ++i) {
    regions[static_cast<size_t>(table->region_modules[i])].push_back(table->regions[i]);
  }
  const std::string root_key = table ? table->module_keys[0] : model ? "relaybuild" : "library";
  std::vector<Module> modules{Module(std::make_shared<RootModule>(library, root_key, regions[0], model))};
  for (int32_t i = 1; i < count; ++i) {
    modules.emplace_back(
        std::make_shared<LibraryModule>(library, table->module_keys[i], regions[static_cast<size_t>(i)]));
    modules[static_cast<size_t>(table->parents[i])].Import(modules.back());
  }
  return modules.front();
}

#if defined(__ELF__) && defined(__LP64__)
/* The loader maps what the headers promise: touching a page behind the file's end would kill the process. */
void CheckWhole(const std::string &path, std::FILE *file, uint64_t size) {
  Elf64_Ehdr head;
  if (std::fread(&head, sizeof head, 1, file) != 1) {
    throw Error("'" + path + "' is cut short, it lacks its header: compile or copy it again");
  }
  if (head.e_ident[EI_CLASS] != ELFCLASS64 || head.e_phentsize != sizeof(Elf64_Phdr)) {
    return;
  }
  const auto lies_inside = [size](uint64_t offset, uint64_t bytes) { return offset <= size && bytes <= size - offset; };
  bool whole = lies_inside(head.e_phoff, uint64_t{head.e_phnum} * sizeof(Elf64_Phdr)) &&
               lies_inside(head.e_shoff, uint64_t{head.e_shnum} * head.e_shentsize) &&
               std::fseek(file, static_cast<long>(head.e_phoff), SEEK_SET) == 0;
  for (int i = 0; whole && i < head.e_phnum; ++i) {
    Elf64_Phdr segment;
    whole = std::fread(&segment, sizeof segment, 1, file) == 1 && lies_inside(segment.p_offset, segment.p_filesz);
  }
  if (!whole) {
    throw Error("'" + path + "' is cut short, it ends before what its headers promise: compile or copy it again");
  }
}
#else
void CheckWhole(const std::string &, std::FILE *, uint64_t) {}
#endif

struct FileCloser {
  void operator()(std::FILE *file) const {
    std::fclose(file);
  }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

/* An open file and its size. */
std::pair<File, uint64_t> OpenFile(const std::string &path) {
  struct stat info;
  File file(std::fopen(path.c_str(), "rb"));
  if (!file || fstat(fileno(file.get()), &info)) {
    throw Error("'" + path + "' cannot be read: " + std::strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    throw Error("'" + path + "' is not a file, expected a module");
  }
  return {std::move(file), static_cast<uint64_t>(info.st_size)};
}

Module LoadLibrary(const std::string &path) {
  {
    const auto [file, size] = OpenFile(path);
    CheckWhole(path, file.get(), size);
  }
  const auto library = std::make_shared<Library>(path);
  return MakeTree(library, FindTable(*library), FindModel(*library));
}

/* "so", "frame", or the end of the file's name behind the last point. */
std::string FormatOf(const std::string &path) {
  char head[kMagicBytes] = {0};
  const auto [file, size] = OpenFile(path);
  const std::string_view start(head, std::fread(head, 1, sizeof head, file.get()));
  if (IsFrame(start)) {
    return "frame";
  }
  const size_t name = path.rfind('/') + 1, point = path.rfind('.');
  const std::string extension = point == std::string::npos || point < name ? "" : path.substr(point + 1);
  const bool is_library = start.substr(0, 4) == "\177ELF" || extension == "dylib";
  return is_library ? kLibraryFormat : extension;
}

std::string MissingFormat(const std::string &path, const std::string &format) {
  std::vector<std::string> known = Keys(TheRegistry().file);
  known.insert(known.begin(), kLibraryFormat);
  const auto flag = std::find_if(std::begin(kFormatFlags), std::end(kFormatFlags),
                                 [&format](const auto &entry) { return format == entry.first; });
  return "'" + path + "': there is no loader '" + kFilePrefix + format + "' for the format '" + format +
         "', expected one of " + Quoted(known) + ": " + FlagAdvice(flag == std::end(kFormatFlags) ? "" : flag->second);
}

} // namespace

Signature::Signature(std::string name, std::vector<Tensor> inputs, std::vector<Tensor> outputs)
    : name_(std::move(name)), inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
  const auto info = [](const Tensor &tensor) {
    return RbTensorInfo{tensor.name.c_str(), static_cast<int32_t>(tensor.shape.size()), tensor.shape.data(),
                        tensor.dtype};
  };
  std::transform(inputs_.begin(), inputs_.end(), std::back_inserter(input_infos_), info);
  std::transform(outputs_.begin(), outputs_.end(), std::back_inserter(output_infos_), info);
  c_ = {name_.c_str(), static_cast<int32_t>(inputs_.size()), static_cast<int32_t>(outputs_.size()), input_infos_.data(),
        output_infos_.data()};
}

std::vector<void *> Unpack(const RbSignature &signature, const RbValue *args, int32_t num_args) {
  std::vector<void *> data(static_cast<size_t>(signature.num_inputs) + static_cast<size_t>(signature.num_outputs));
  if (rb_unpack(&signature, args, num_args, data.data())) {
    throw Error(rb_last_error());
  }
  return data;
}

RbValue PackedFunc::Call(const RbValue *args, int32_t num_args) const {
  if (!body_) {
    throw Error("a function that is not there was called");
  }
  RbValue result{};
  body_(args, num_args, &result);
  return result;
}

ModuleNode::~ModuleNode() = default;

std::string ModuleNode::GetSource(const std::string &) const {
  return "";
}

std::shared_ptr<const RbModelApi> ModuleNode::model() const {
  return nullptr;
}

void ModuleNode::SaveToBinary(std::string *) const {
  throw Error("a module of type '" + std::string(type_key()) + "' cannot be saved");
}

PackedFunc Module::GetFunction(const std::string &name, bool query_imports) const {
  std::vector<std::string> names;
  std::vector<const Module *> open{this};
  while (!open.empty()) {
    const Module &module = *open.back();
    open.pop_back();
    if (PackedFunc function = module->GetFunction(name)) {
      return function;
    }
    const std::vector<std::string> own = module->FunctionNames();
    names.insert(names.end(), own.begin(), own.end());
    const std::vector<Module> &imports = module->imports();
    for (auto import = imports.rbegin(); query_imports && import != imports.rend(); ++import) {
      open.push_back(&*import);
    }
  }
  throw Error("the module of type '" + std::string(node_->type_key()) + "' has no function '" + name +
              "', its functions are: " + Quoted(names));
}

std::shared_ptr<const RbModelApi> Module::model() const {
  return node_ ? node_->model() : nullptr;
}

std::string Module::SaveToBinary() const {
  BinaryEntry entry;
  const std::string key = node_->type_key();
  Find(TheRegistry().binary, key, &entry);
  std::string payload;
  node_->SaveToBinary(&payload);
  return FrameBlob(key, entry.flag, payload);
}

void Module::Import(Module other) const {
  std::vector<const Module *> open{&other};
  while (!open.empty()) {
    const Module &module = *open.back();
    open.pop_back();
    if (module.node_ == node_) {
      throw Error("a module cannot import itself, or what imports it");
    }
    for (const Module &import : module->imports()) {
      open.push_back(&import);
    }
  }
  node_->imports_.push_back(std::move(other));
}

void RegisterBinaryLoader(const std::string &key, const std::string &flag, BinaryLoader loader) {
  const std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  TheRegistry().binary[key] = {flag, std::move(loader)};
}

void RegisterFileLoader(const std::string &key, FileLoader loader) {
  const std::lock_guard<std::mutex> lock(TheRegistry().mutex);
  TheRegistry().file[key] = std::move(loader);
}

std::vector<std::string> LoaderNames() {
  std::vector<std::string> names;
  for (const std::string &key : Keys(TheRegistry().binary)) {
    names.push_back(kBinaryPrefix + key);
  }
  for (const std::string &key : Keys(TheRegistry().file)) {
    names.push_back(kFilePrefix + key);
  }
  return names;
}

std::string FrameBlob(const std::string &type_key, const std::string &flag, std::string_view payload) {
  std::string frame(kMagic, kMagicBytes);
  frame.reserve(kHeadBytes + type_key.size() + flag.size() + payload.size() + kChecksumBytes);
  AppendNumber(&frame, kFrameVersion, 4);
  AppendNumber(&frame, type_key.size(), 4);
  AppendNumber(&frame, flag.size(), 4);
  AppendNumber(&frame, payload.size(), 8);
  frame.append(type_key).append(flag).append(payload);
  AppendNumber(&frame, Checksum(frame), kChecksumBytes);
  return frame;
}

Blob UnframeBlob(std::string_view data) {
  if (!IsFrame(data)) {
    throw Error("these " + std::to_string(data.size()) +
                " bytes are no module of relaybuild's: they do not begin as "
                "a frame does");
  }
  if (data.size() < kHeadBytes) {
    throw Error("the module is cut short: it has " + std::to_string(data.size()) + " bytes, its head has " +
                std::to_string(kHeadBytes));
  }
  const uint64_t version = NumberAt(data, kMagicBytes, 4);
  if (version != kFrameVersion) {
    throw Error("the module's frame has version " + std::to_string(version) + ", this relaybuild reads version " +
                std::to_string(kFrameVersion) + ": use the release that wrote it, or a later one");
  }
  const uint64_t key_size = NumberAt(data, kMagicBytes + 4, 4), flag_size = NumberAt(data, kMagicBytes + 8, 4);
  const uint64_t payload_size = NumberAt(data, kMagicBytes + 12, 8);
  const uint64_t others = kHeadBytes + key_size + flag_size + kChecksumBytes;
  if (data.size() < others || data.size() - others < payload_size) {
    throw Error("the module is cut short: it has " + std::to_string(data.size()) + " bytes, its head promises " +
                std::to_string(payload_size) + " and " + std::to_string(others) + " around them");
  }
  if (data.size() - others > payload_size) {
    throw Error("the module was altered: " + std::to_string(data.size() - others - payload_size) +
                " bytes follow behind its end");
  }
  const size_t end = data.size() - kChecksumBytes;
  if (Checksum(data.substr(0, end)) != NumberAt(data, end, kChecksumBytes)) {
    throw Error("the module was altered: its checksum does not match its bytes");
  }
  Blob blob;
  blob.type_key = data.substr(kHeadBytes, key_size);
  blob.flag = data.substr(kHeadBytes + key_size, flag_size);
  blob.payload = data.substr(kHeadBytes + key_size + flag_size, payload_size);
  return blob;
}

Module LoadFromBinary(const std::string &type_key, std::string_view data) {
  const Blob blob = UnframeBlob(data);
  if (!type_key.empty() && blob.type_key != type_key) {
    throw Error("the module is of type '" + blob.type_key + "', expected '" + type_key + "'");
  }
  return LoadPayload(blob);
}

Module LoadModule(const std::string &path, const std::string &format) {
  const std::string chosen = format.empty() ? FormatOf(path) : format;
  FileLoader loader;
  if (Find(TheRegistry().file, chosen, &loader)) {
    return loader(path);
  }
  if (chosen == kLibraryFormat) {
    return LoadLibrary(path);
  }
  if (chosen == "frame" && format.empty()) {
    return LoadFromBinary("", ReadFile(path));
  }
  throw Error(MissingFormat(path, chosen));
}

std::string ReadFile(const std::string &path) {
  const auto [file, size] = OpenFile(path);
  std::string content(size, '\0');
  const size_t found = std::fread(content.data(), 1, content.size(), file.get());
  if (found != content.size()) {
    throw Error("'" + path + "' cannot be read: it ended after " + std::to_string(found) + " of " +
                std::to_string(size) + " bytes");
  }
  return content;
}

namespace {

/* The module of each blob of this library, made once. */
Module BlobModule(const RbBlob *blob) {
  static std::mutex mutex;
  static std::map<const RbBlob *, Module> modules;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = modules.find(blob);
  if (found != modules.end()) {
    return found->second;
  }
  const std::string_view data(reinterpret_cast<const char *>(blob->bytes), blob->num_bytes);
  return modules.emplace(blob, LoadFromBinary(blob->type_key, data)).first->second;
}

PackedFunc BlobFunction(const RbRegion *region) {
  return BlobModule(region->blob).GetFunction(region->signature->name);
}

/* Runs `body`, and makes what it throws the error of region `region`: exceptions stay on this side of the C code. */
template <class F> int32_t Guarded(const RbRegion *region, const F &body) {
  const char *const name = region->signature->name;
  try {
    body();
    return 0;
  } catch (const std::bad_alloc &) {
    return rb_raise("region '%s': out of memory", name);
  } catch (const std::exception &error) {
    return rb_raise("region '%s': %s", name, error.what());
  } catch (...) {
    return rb_raise("region '%s' failed and gave no reason", name);
  }
}

} // namespace
} // namespace relaybuild

/* What the adapter of a region that became a blob calls; the blob has a function of the region's name. */
extern "C" {

RB_HIDDEN int32_t rb_blob_create(const RbRegion *region, void **self);
RB_HIDDEN int32_t rb_blob_run(const RbRegion *region, void *self, const RbValue *args, int32_t num_args,
                              RbValue *result);
RB_HIDDEN void rb_blob_destroy(void *self);

int32_t rb_blob_create(const RbRegion *region, void **self) {
  return relaybuild::Guarded(region,
                             [region, self] { *self = new relaybuild::PackedFunc(relaybuild::BlobFunction(region)); });
}

int32_t rb_blob_run(const RbRegion *region, void *self, const RbValue *args, int32_t num_args, RbValue *result) {
  return relaybuild::Guarded(region, [=] {
    const auto *function = static_cast<const relaybuild::PackedFunc *>(self);
    *result = function ? function->Call(args, num_args) : relaybuild::BlobFunction(region).Call(args, num_args);
  });
}

void rb_blob_destroy(void *self) {
  delete static_cast<relaybuild::PackedFunc *>(self);
}
}

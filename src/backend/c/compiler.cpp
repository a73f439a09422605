#include "backend/c/compiler.h"

#include "backend/c/render.h"
#include "backend/common/host_machine.h"
#include "support/child_process.h"
#include "support/fail.h"
#include "support/printable.h"
#include "support/private_file.h"

#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

namespace egret::backend::c {

namespace fs = std::filesystem;

namespace {

void write(const fs::path& path, std::string_view bytes) {
  if (const std::error_code error = write_private(path, bytes))
    fail(ErrorKind::Device, "c: {} cannot be written: {}", path.string(), error.message());
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

constexpr std::size_t kWords = 4000; // of a compiler, in a message

} // namespace

Library::Library(const fs::path& file) : handle_(::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (!handle_)
    fail(ErrorKind::Device, "c: what the compiler made cannot be loaded: {}", ::dlerror());
}

Library::~Library() {
  ::dlclose(handle_);
}

void* Library::function(const std::string& name) const {
  void* found = ::dlsym(handle_, name.c_str());
  if (!found)
    fail(ErrorKind::Device, "c: what the compiler made has no function {}", name);
  return found;
}

Compiler Compiler::find() {
  Compiler compiler;
  const std::string_view named = environment("EGRET_CC");
  compiler.command_ = named.empty() ? "cc" : std::string(named);
  const TemporaryFolder folder("c", "egret-c");
  const Ended ended = run_process({compiler.command_, "--version"}, {folder / "version", {}});
  std::string why = ended.why_not_run();
  if (why.empty() && ended.code != 0)
    why = fmt::format("`--version` ended with code {}", ended.code);
  if (!why.empty() && named.empty())
    fail(ErrorKind::Device,
         "c: there is no C compiler: cc cannot be run ({}); install one (Debian, Ubuntu: apt-get "
         "install gcc libc6-dev), or name one by EGRET_CC",
         why);
  if (!why.empty())
    fail(ErrorKind::Device, "c: EGRET_CC names {}, which is no C compiler: {}",
         printable(compiler.command_), why);
  const std::string said = read(folder / "version");
  compiler.version_ = printable(said.substr(0, said.find('\n')));
  return compiler;
}

std::string Compiler::compile(std::string_view text, const std::string& name) const {
  const TemporaryFolder folder("c", "egret-c");
  const fs::path source = folder / "kernel.c", object = folder / "kernel.so",
                 words = folder / "words";
  write(source, text);
  std::vector<std::string> command{command_};
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), {"-o", object.string(), source.string(), "-lm", "-ldl"});
  const Ended ended = run_process(command, {words, {}});
  if (const std::string why = ended.why_not_run(); !why.empty())
    fail(ErrorKind::Device, "c: {} cannot be run: {}", printable(command_), why);
  if (ended.code != 0)
    fail(ErrorKind::Unsupported, "c: {} refuses kernel {}:\n{}", printable(command_),
         printable(name), terminal_text(read(words).substr(0, kWords)));
  std::string bytes = read(object);
  if (bytes.empty())
    fail(ErrorKind::Device, "c: {} made no library of kernel {}", printable(command_),
         printable(name));
  return bytes;
}

std::unique_ptr<Library> load(std::string_view object, const std::string& name) {
  const TemporaryFolder folder("c", "egret-c");
  const fs::path file = folder / (name + ".so");
  write(file, object);
  return std::make_unique<Library>(file);
}

} // namespace egret::backend::c

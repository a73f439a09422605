#include "backend/c/compiler.h"

#include "backend/c/render.h"
#include "backend/common/host_machine.h"
#include "support/fail.h"
#include "support/printable.h"
#include "support/private_file.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <vector>

extern char** environ;

namespace egret::backend::c {

namespace fs = std::filesystem;

namespace {

// A folder for this process alone, which goes with the object.
class Folder {
public:
  Folder() {
    std::error_code error;
    const fs::path place = fs::temp_directory_path(error);
    std::string pattern = (place / "egret-c-XXXXXX").string();
    if (error || !::mkdtemp(pattern.data()))
      fail(ErrorKind::Device, "c: no folder can be made below {} ({}); TMPDIR names another",
           place.string(), error ? error.message() : std::strerror(errno));
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  fs::path operator/(const char* name) const { return path_ / name; }

private:
  fs::path path_;
};

void write(const fs::path& path, std::string_view bytes) {
  if (const std::error_code error = write_private(path, bytes))
    fail(ErrorKind::Device, "c: {} cannot be written: {}", path.string(), error.message());
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Ended {
  int error = 0;  ///< an errno: it could not be run
  int code = 0;   ///< its exit code
  int signal = 0; ///< or the signal that ended it
};

/// Runs a command with both of its outputs in a file, and waits for it.
Ended run(const std::vector<std::string>& command, const fs::path& output) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                   O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t process = 0;
  Ended ended;
  ended.error = posix_spawnp(&process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (ended.error != 0)
    return ended;
  int status = 0;
  while (::waitpid(process, &status, 0) < 0)
    if (errno != EINTR) {
      ended.error = errno;
      return ended;
    }
  if (WIFSIGNALED(status))
    ended.signal = WTERMSIG(status);
  else
    ended.code = WEXITSTATUS(status);
  return ended;
}

/// What went wrong, unless the command ran to its end.
std::string why_not_run(const Ended& ended) {
  if (ended.error != 0)
    return std::strerror(ended.error);
  return ended.signal != 0 ? fmt::format("signal {} stopped it", ended.signal) : "";
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
  const Folder folder;
  const Ended ended = run({compiler.command_, "--version"}, folder / "version");
  std::string why = why_not_run(ended);
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
  const Folder folder;
  const fs::path source = folder / "kernel.c", object = folder / "kernel.so",
                 words = folder / "words";
  write(source, text);
  std::vector<std::string> command{command_};
  command.insert(command.end(), std::begin(kFlags), std::end(kFlags));
  command.insert(command.end(), {"-o", object.string(), source.string(), "-lm"});
  const Ended ended = run(command, words);
  if (const std::string why = why_not_run(ended); !why.empty())
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
  const Folder folder;
  const fs::path file = folder / (name + ".so").c_str();
  write(file, object);
  return std::make_unique<Library>(file);
}

} // namespace egret::backend::c

#include "runtime/environment.h"

#include "backend/all/backends.h"
#include "compiler/pipeline.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace egret::runtime {
namespace {

template <class T>
std::optional<T> number_of(std::string_view text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

std::vector<std::string> parts(std::string_view text) {
  std::vector<std::string> found;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    found.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

int whole(std::string_view text, std::string_view who, int least, int most) {
  const auto value = number_of<int>(text);
  if (!value || *value < least || *value > most)
    fail(ErrorKind::Value, "{}: \"{}\" is no number from {} to {}", who, printable(text), least,
         most);
  return *value;
}

void is_threads(std::string_view text, std::string_view who) {
  whole(text, who, 1, 1024);
}
void is_megabytes(std::string_view text, std::string_view who) {
  whole(text, who, 0, 1000000);
}
void is_cpu(std::string_view text, std::string_view who) {
  if (text != "native" && text != "avx2" && text != "sse2")
    fail(ErrorKind::Value, "{}: \"{}\" is none of native, avx2, sse2", who, printable(text));
}
/// Where a path leads is found out by whoever needs the file.
void is_path(std::string_view, std::string_view) {}

constexpr std::array kVariables{
    EnvironmentVariable{"EGRET_ALLOW", "tags with commas between",
                        "rules that may be used beside the exact ones: `reassociates`, "
                        "`approximate`, `inference-only`",
                        [](std::string_view t, std::string_view w) { parse_tags(t, w); }},
    EnvironmentVariable{"EGRET_BUDGET", "seconds", "for the search of one program; 60 by default",
                        [](std::string_view t, std::string_view w) { parse_budget(t, w); }},
    EnvironmentVariable{"EGRET_CACHE", "a folder, or `off`",
                        "where choices and machine code are kept; `$XDG_CACHE_HOME/egret` or "
                        "`~/.cache/egret` by default",
                        is_path},
    EnvironmentVariable{"EGRET_CC", "a file",
                        "the C compiler of the device `c`, or its name; `cc` by default", is_path},
    EnvironmentVariable{"EGRET_CHECKED", "0 or 1",
                        "1: the results of every run are compared with the reference's",
                        [](std::string_view t, std::string_view w) { parse_flag(t, w); }},
    EnvironmentVariable{"EGRET_CPU", "`native`, `avx2` or `sse2`", "the widest instructions to use",
                        is_cpu},
    EnvironmentVariable{"EGRET_CUBLAS", "a file",
                        "the only cuBLAS that `egret bench` compares with", is_path},
    EnvironmentVariable{"EGRET_CUBLASLT", "a file", "the only cuBLASLt that is tried", is_path},
    EnvironmentVariable{"EGRET_CUDA_DRIVER", "a file", "the only CUDA driver that is tried",
                        is_path},
    EnvironmentVariable{"EGRET_DEBUG", "0 to 6",
                        "1 to 6 print on stderr, each what those below it do and: plans; kernels "
                        "with times; loop nests; generated code; what each pass made; what values "
                        "each launch stored",
                        [](std::string_view t, std::string_view w) { parse_debug_level(t, w); }},
    EnvironmentVariable{"EGRET_DEBUG_NODES", "ops, or nodes as `%12`, with commas between",
                        "`EGRET_DEBUG` tells only of launches that compute one of them",
                        [](std::string_view t, std::string_view w) { parse_debug_nodes(t, w); }},
    EnvironmentVariable{"EGRET_DEBUG_PASSES", "passes with commas between",
                        "`EGRET_DEBUG=5` tells only of these; `egret compile --list-passes`",
                        [](std::string_view t, std::string_view w) { parse_debug_passes(t, w); }},
    EnvironmentVariable{"EGRET_DETERMINISTIC", "0 or 1",
                        "1: results have the same bits with every effort",
                        [](std::string_view t, std::string_view w) { parse_flag(t, w); }},
    EnvironmentVariable{
        "EGRET_DEVICE", "`cpu`, `c`, `cuda` or `cuda:N`", "where programs run",
        [](std::string_view t, std::string_view w) { backend::backends().parse(t, w); }},
    EnvironmentVariable{
        "EGRET_EFFORT", "`none`, `quick`, `search` or `exhaustive`",
        "how much work goes into compiling; by default `quick` for compiled functions and explicit "
        "graphs, else `none`",
        [](std::string_view t, std::string_view w) { parse_effort(t, w); }},
    EnvironmentVariable{"EGRET_ENGINE", "`cpu`, `interpreter` or `reference`",
                        "the last two are slow and find faults",
                        [](std::string_view t, std::string_view w) { parse_engine(t, w); }},
    EnvironmentVariable{"EGRET_FROZEN", "0 or 1",
                        "1: the tuning database is read-only: what it has is used, nothing is "
                        "measured or written",
                        [](std::string_view t, std::string_view w) { parse_flag(t, w); }},
    EnvironmentVariable{"EGRET_LIBRARIES", "0 or 1",
                        "0: searches choose among egret's own kernels only",
                        [](std::string_view t, std::string_view w) { parse_flag(t, w); }},
    EnvironmentVariable{"EGRET_LLVM", "a file",
                        "the only `libegret_llvm.so`, the CPU's code generator, that is tried",
                        is_path},
    EnvironmentVariable{"EGRET_NVRTC", "a file", "the only NVRTC that is tried", is_path},
    EnvironmentVariable{
        "EGRET_OBJECTS_MB", "0 to 1000000",
        "MiB of machine code that are kept for each device; 512 by default, 0: none", is_megabytes},
    EnvironmentVariable{"EGRET_STRICT", "0 or 1",
                        "1: a kernel that a compiler or verification refuses is an error, not "
                        "replaced by another schedule",
                        [](std::string_view t, std::string_view w) { parse_flag(t, w); }},
    EnvironmentVariable{"EGRET_PLANS_MB", "1 to 1000000",
                        "MiB of the host's memory for the plans that are kept; 256 by default",
                        [](std::string_view t, std::string_view w) { parse_megabytes(t, w); }},
    EnvironmentVariable{"EGRET_QUEUE_MB", "1 to 1000000",
                        "MiB of data that a thread's recorded operations may wait to read before "
                        "they run unread; 1024 by default",
                        [](std::string_view t, std::string_view w) { parse_megabytes(t, w); }},
    EnvironmentVariable{
        "EGRET_QUEUE_OPS", "1 to 1000000",
        "operations that a thread records before they run unread; 4096 by default",
        [](std::string_view t, std::string_view w) { parse_queue_operations(t, w); }},
    EnvironmentVariable{"EGRET_RECORD", "a file",
                        "a record of all that the process compiles and runs, for `egret view`",
                        is_path},
    EnvironmentVariable{"EGRET_THREADS", "1 to 1024",
                        "threads that kernels may use; by default all cores of the process",
                        is_threads},
    EnvironmentVariable{"EGRET_WORKER", "a file",
                        "the `egret` command in whose process candidates are tried", is_path},
};

} // namespace

std::span<const EnvironmentVariable> environment_variables() {
  return kVariables;
}

std::optional<std::string> environment(const char* name) {
  const char* text = std::getenv(name);
  return text && *text ? std::optional<std::string>(text) : std::nullopt;
}

void check_environment() {
  for (const EnvironmentVariable& variable : kVariables)
    if (const auto text = environment(variable.name))
      variable.check(*text, variable.name);
}

bool parse_flag(std::string_view text, std::string_view who) {
  if (text != "0" && text != "1")
    fail(ErrorKind::Value, "{}: `{}` is neither 0 nor 1", who, printable(text));
  return text == "1";
}

int parse_queue_operations(std::string_view text, std::string_view who) {
  return whole(text, who, 1, 1000000);
}

int parse_megabytes(std::string_view text, std::string_view who) {
  return whole(text, who, 1, 1000000);
}

int parse_debug_level(std::string_view text, std::string_view who) {
  constexpr int kMostLevel = 6;
  return whole(text, who, 0, kMostLevel);
}

std::vector<std::string> parse_debug_passes(std::string_view text, std::string_view who) {
  std::vector<std::string> names = parts(text);
  for (const std::string& name : names)
    compiler::find_pass(name, who);
  return names;
}

std::vector<std::string> parse_debug_nodes(std::string_view text, std::string_view who) {
  std::vector<std::string> names = parts(text);
  for (const std::string& name : names)
    if (!op_named(name) && !(name.starts_with('%') && number_of<ir::NodeId>(name.substr(1))))
      fail(ErrorKind::Value, "{}: `{}` is neither an op nor a node such as %12", who,
           printable(name));
  return names;
}

double checked_budget(double seconds, std::string_view who) {
  if (!(seconds > 0) || !std::isfinite(seconds))
    fail(ErrorKind::Value, "{}: a budget of {} seconds; it is to be a positive number", who,
         seconds);
  return seconds;
}

double parse_budget(std::string_view text, std::string_view who) {
  const auto seconds = number_of<double>(text);
  if (!seconds)
    fail(ErrorKind::Value, "{}: `{}` is not a number of seconds", who, printable(text));
  return checked_budget(*seconds, who);
}

Engine parse_engine(std::string_view text, std::string_view who) {
  if (text == "cpu")
    return Engine::Compiled;
  if (text == "interpreter")
    return Engine::Interpreter;
  if (text == "reference")
    return Engine::Reference;
  fail(ErrorKind::Value, "{}: `{}` is none of cpu, interpreter, reference", who, printable(text));
}

RuleTags parse_tags(std::string_view text, std::string_view who) {
  RuleTags tags;
  for (const std::string& tag : parts(text))
    tags.add(parse_rule_tag(tag, who));
  return tags;
}

} // namespace egret::runtime

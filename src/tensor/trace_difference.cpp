// What two traces of one function do not have in common: something froze in one of them.
#include "runtime/runtime.h"
#include "tensor/engine.h"
#include "tensor/trace.h"

#include <fmt/format.h>

#include <sstream>

namespace egret::detail {

namespace {

using Binding = TracedProgram::Binding;
using Value = TracedProgram::Value;

std::string first_line_that_differs(const std::string& before, const std::string& now) {
  std::istringstream was(before), is(now);
  std::string old_line, new_line;
  for (;;) {
    const bool more_old = static_cast<bool>(std::getline(was, old_line));
    const bool more_new = static_cast<bool>(std::getline(is, new_line));
    if (!more_old && !more_new)
      return {};
    if (!more_old || !more_new || old_line != new_line)
      return fmt::format("`{}` is recorded and was `{}`", more_new ? new_line : "nothing",
                         more_old ? old_line : "nothing");
  }
}

std::vector<std::byte> bytes_of(const NodePtr& constant) {
  const auto storage = storage_of(constant);
  std::vector<std::byte> bytes(storage->bytes());
  if (!bytes.empty())
    runtime::Runtime::instance().copy_out(bytes.data(), storage, bytes.size());
  return bytes;
}

std::string of_constants(const NodePtr& before, const NodePtr& now) {
  if (!before || !now)
    return before == now ? "" : "a constant came or went";
  if (before->form.dtype != now->form.dtype || before->form.shape != now->form.shape ||
      before->kind != now->kind)
    return "a constant has another type or shape";
  if (now->kind == Node::Kind::Number)
    return before->number.bits == now->number.bits
               ? ""
               : fmt::format("a number is {} and was {}", now->number.str(), before->number.str());
  return bytes_of(before) == bytes_of(now) ? "" : "a constant tensor has other elements";
}

std::string of_values(const Value& before, const Value& now, const char* what) {
  if (before.kind != now.kind || before.number != now.number || before.needs_grad != now.needs_grad)
    return fmt::format("{} is made in another way", what);
  return before.kind == Value::Kind::Constant ? of_constants(before.constant, now.constant) : "";
}

bool same_source(const TraceSource& a, const TraceSource& b) {
  return a.kind == b.kind && a.leaf == b.leaf && a.owner == b.owner && a.handle == b.handle;
}

} // namespace

std::string difference(const TracedProgram& before, const TracedProgram& now) {
  if (before.sources.size() != now.sources.size())
    return fmt::format("it reaches {} tensors and reached {}", now.sources.size(),
                       before.sources.size());
  for (std::size_t i = 0; i < now.sources.size(); ++i)
    if (!same_source(before.sources[i], now.sources[i]) || before.names[i] != now.names[i])
      return fmt::format("{} is another tensor", now.names[i]);
  if (std::string lines = first_line_that_differs(ir::print(before.graph), ir::print(now.graph));
      !lines.empty())
    return lines;
  if (before.bindings.size() != now.bindings.size())
    return "it has other inputs";
  for (std::size_t i = 0; i < now.bindings.size(); ++i) {
    const Binding &a = before.bindings[i], &b = now.bindings[i];
    if (a.kind != b.kind || (a.kind == Binding::Kind::Source && a.source != b.source))
      return "it has other inputs";
    if (a.kind != Binding::Kind::Source)
      if (std::string constants = of_constants(a.constant, b.constant); !constants.empty())
        return constants;
  }
  if (before.states.size() != now.states.size())
    return fmt::format("it changes {} tensors and changed {}", now.states.size(),
                       before.states.size());
  for (std::size_t i = 0; i < now.states.size(); ++i) {
    const auto &a = before.states[i], &b = now.states[i];
    if (a.source != b.source || a.has_source != b.has_source || a.leaf != b.leaf ||
        a.reshaped != b.reshaped)
      return "it changes other tensors";
    if (std::string values = of_values(a.value, b.value, "what it changes"); !values.empty())
      return values;
  }
  if (before.results.size() != now.results.size())
    return fmt::format("it gives {} tensors and gave {}", now.results.size(),
                       before.results.size());
  for (std::size_t i = 0; i < now.results.size(); ++i)
    if (std::string values = of_values(before.results[i], now.results[i], "a result");
        !values.empty())
      return values;
  return {};
}

} // namespace egret::detail

// Compiled functions: which trace a call replays, and why it traced anew.
#include "egret/compile.h"

#include "egret/autocast.h"
#include "egret/grad.h"
#include "runtime/count.h"
#include "runtime/debug.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/hash.h"
#include "support/sizes.h"
#include "tensor/named_dims.h"
#include "tensor/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

namespace egret::detail {
namespace {

// Marks that keep words of different meaning apart.
constexpr std::uint64_t kConstant = 0x63, kText = 0x74, kCount = 0x6e, kTensor = 0x7a;

} // namespace

void Flatten::tensor(const std::string& path, Tensor& value) {
  call_.signature.push_back(kTensor | static_cast<std::uint64_t>(state_) << 8);
  call_.leaves.push_back({&value, argument_, state_, path});
}
void Flatten::constant(const std::string&, std::uint64_t bits) {
  call_.signature.insert(call_.signature.end(), {kConstant, bits});
}
void Flatten::text(const std::string&, const std::string& value) {
  call_.signature.insert(call_.signature.end(), {kText, hash_text(value)});
}
void Flatten::count(const std::string&, std::size_t size) {
  call_.signature.insert(call_.signature.end(), {kCount, size});
}

namespace {

// Everything about the tensors of a call that a trace depends on.
struct Key {
  // As the call gives it, whether gradients are recorded, Autocast's type, and the device.
  std::vector<std::uint64_t> structure;
  std::vector<std::uint64_t> tensors;
  friend bool operator==(const Key&, const Key&) = default;
};

Key key_of(const Call& call, const NamedDims::Seen& seen) {
  Key key{call.signature, {}};
  key.structure.push_back(grad_enabled());
  const auto products = autocast_type();
  key.structure.push_back(products ? 1 + static_cast<std::uint64_t>(*products) : 0);
  key.structure.push_back(runtime::Runtime::instance().place());
  for (std::size_t i = 0; i < call.leaves.size(); ++i) {
    const Tensor& t = *call.leaves[i].tensor;
    if (!t.defined()) {
      key.tensors.push_back(~std::uint64_t{0});
      continue;
    }
    const Handle& handle = *Access::handle(t);
    std::size_t first = i; // handles that occur twice must do so in every call
    for (std::size_t j = 0; j < i && first == i; ++j)
      if (call.leaves[j].tensor->defined() &&
          Access::handle(*call.leaves[j].tensor).get() == &handle)
        first = j;
    const NodePtr node = handle.node();
    key.tensors.push_back(static_cast<std::uint64_t>(handle.dtype) |
                          static_cast<std::uint64_t>(node->needs_grad.load()) << 8 |
                          static_cast<std::uint64_t>(handle.shape.size()) << 16 |
                          static_cast<std::uint64_t>(first) << 32);
    if (const runtime::DeviceNumber device = device_code(*node))
      key.tensors.back() |= std::uint64_t{device} << 48;
    for (const Expr& dim : seen.shape(call, i))
      key.tensors.push_back(dim.is_constant() ? static_cast<std::uint64_t>(dim.value())
                                              : dim.hash());
  }
  return key;
}

std::string describe(const Call& call, const NamedDims::Seen& seen, std::size_t leaf) {
  const Tensor& t = *call.leaves[leaf].tensor;
  return t.defined() ? name_of(t.dtype()) + to_string(seen.shape(call, leaf)) : "empty";
}

} // namespace

struct CompiledImpl {
  explicit CompiledImpl(CompileOptions o) : options(std::move(o)), dims(options.dims) {
    if (options.memory_limit)
      checked_bytes(*options.memory_limit, "compile: memory_limit");
  }
  struct Entry {
    Key key;
    std::vector<std::string> leaves; // "f32[2,3]", to tell what changed
    std::string range;               // of the named dims
    std::shared_ptr<const TracedProgram> traced;
  };
  CompileOptions options;
  NamedDims dims;
  std::mutex mutex;
  std::vector<Entry> entries; // most recently used last
  std::shared_ptr<const TracedProgram> last;
  std::uint64_t calls = 0;
  std::string report;
  std::string changed; // why the trace of this structure that was used last does not fit

  // Why no trace fits: what differs from the one used last.
  std::string reason(const Call& call, const NamedDims::Seen& seen, const Key& key) const {
    if (!seen.alone.empty())
      return seen.alone + ": traced for these sizes alone";
    if (entries.empty())
      return changed.empty() ? "the first call" : changed;
    const Entry& last_used = entries.back();
    if (last_used.key.structure != key.structure)
      return "the structure of the arguments, a number among them, Autocast or the device differs";
    for (std::size_t i = 0; i < call.leaves.size() && i < last_used.leaves.size(); ++i) {
      const std::string now = describe(call, seen, i);
      if (now != last_used.leaves[i])
        return fmt::format("{} is {} now and was {}", name(call.leaves[i]), now,
                           last_used.leaves[i]);
    }
    if (last_used.key.tensors != key.tensors)
      return "other tensors require gradients, or are one and the same";
    return changed;
  }
  // The sizes that the trace used last serves.
  std::string range() const {
    return entries.empty() || entries.back().range.empty() ? "" : "; for " + entries.back().range;
  }
  static std::string name(const Call::Leaf& leaf) {
    return leaf.path.empty() ? fmt::format("argument {}", leaf.argument)
                             : fmt::format("argument {}, {},", leaf.argument, leaf.path);
  }

  struct Found {
    std::shared_ptr<const TracedProgram> traced; // null: none fits
    std::vector<std::shared_ptr<Handle>> handles;
  };
  Found find(const Call& call, const Key& key) {
    changed.clear();
    for (std::size_t i = entries.size(); i-- > 0;) {
      if (!(entries[i].key == key))
        continue;
      Resolved resolved = resolve(*entries[i].traced, call);
      if (!resolved.changed.empty()) {
        if (changed.empty())
          changed = std::move(resolved.changed);
        if (resolved.gone)
          entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
        continue;
      }
      std::rotate(entries.begin() + static_cast<std::ptrdiff_t>(i),
                  entries.begin() + static_cast<std::ptrdiff_t>(i) + 1, entries.end());
      return {entries.back().traced, std::move(resolved.handles)};
    }
    return {};
  }
  void put(const Call& call, const NamedDims::Seen& seen, Key key,
           std::shared_ptr<const TracedProgram> traced) {
    Entry entry{std::move(key), {}, dims.range(seen), std::move(traced)};
    for (std::size_t i = 0; i < call.leaves.size(); ++i)
      entry.leaves.push_back(describe(call, seen, i));
    entries.push_back(std::move(entry));
    if (entries.size() > std::max<std::size_t>(1, options.limit))
      entries.erase(entries.begin());
  }
};

CompiledBase::CompiledBase(CompileOptions options)
    : impl_(std::make_unique<CompiledImpl>(std::move(options))) {}
CompiledBase::~CompiledBase() = default;
CompiledBase::CompiledBase(CompiledBase&&) noexcept = default;
CompiledBase& CompiledBase::operator=(CompiledBase&&) noexcept = default;

namespace {

// Checked execution: the function records the same again, or something that it reads is frozen in
// the trace.
void check_again(Caller& caller, const NamedDims::Seen& seen, const CompileOptions& options,
                 const TracedProgram& traced) {
  const auto again = trace_function(caller, seen, options, false);
  const std::string what = difference(traced, *again);
  if (!what.empty())
    fail(ErrorKind::State,
         "{}: checked execution: traced again, the function does not record what it did before: "
         "{}; a C++ "
         "value that it captures has changed (a number, a flag, a pointer): pass it as an "
         "argument, or keep it in a tensor of rank 0",
         options.name, what);
}

} // namespace

Result CompiledBase::run(Caller& caller) {
  if (current_scope())
    return caller.trace(); // within another traced function this one is part of it
  CompiledImpl& impl = *impl_;
  const Call call = caller.flatten(impl.dims.by_path());
  const NamedDims::Seen seen = impl.dims.seen(call);
  const Key key = key_of(call, seen);
  const bool check = runtime::Runtime::instance().checked_execution();
  CompiledImpl::Found found;
  {
    std::lock_guard lock(impl.mutex);
    ++impl.calls;
    found = impl.find(call, key);
    if (found.traced) {
      impl.last = found.traced;
      impl.report.clear();
    }
  }
  if (found.traced) {
    if (check)
      check_again(caller, seen, impl.options, *found.traced);
    if (found.traced->program)
      runtime::count().plan_hits.add(1);
    return replay(*found.traced, call, std::move(found.handles));
  }
  const Call named = caller.flatten(true);
  std::string reason;
  {
    std::lock_guard lock(impl.mutex);
    reason = impl.reason(named, seen, key);
  }
  runtime::debug(1, "{}: traced, {}", impl.options.name, reason);
  for (int tries = 0; tries < 4; ++tries) {
    const auto traced = trace_function(caller, seen, impl.options);
    if (check)
      check_again(caller, seen, impl.options, *traced);
    const Call now = caller.flatten(false);
    {
      std::lock_guard lock(impl.mutex);
      found = impl.find(now, key); // another thread may have traced it, too
      if (!found.traced) {
        impl.put(named, seen, key, traced);
        found = impl.find(now, key);
      }
      impl.last = found.traced ? found.traced : traced;
      impl.report = reason;
    }
    if (found.traced)
      return replay(*found.traced, now, std::move(found.handles));
  }
  std::string changed;
  {
    std::lock_guard lock(impl.mutex);
    changed = impl.changed;
  }
  fail(ErrorKind::State, "{}: what it captures changes while it is traced: {}", impl.options.name,
       changed);
}

std::string CompiledBase::explain() const {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->last)
    return fmt::format("{}: not called yet\n", impl_->options.name);
  if (!impl_->last->program)
    return fmt::format("{}: nothing to compute\n", impl_->options.name);
  return impl_->last->rules_text + impl_->last->program->report().text();
}

std::string CompiledBase::last_report() const {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->last)
    return fmt::format("{}: not called yet\n", impl_->options.name);
  if (impl_->report.empty())
    return fmt::format("{}: call {} replayed a trace ({} kept){}\n", impl_->options.name,
                       impl_->calls, impl_->entries.size(), impl_->range());
  std::string text = fmt::format("{}: call {} traced: {}{}\n", impl_->options.name, impl_->calls,
                                 impl_->report, impl_->range());
  std::size_t donated = 0;
  for (const auto& state : impl_->last->states)
    donated += state.value.donated;
  text += fmt::format("{} inputs, {} results, {} states of which {} updated in place\n",
                      impl_->last->sources.size(), impl_->last->results.size(),
                      impl_->last->states.size(), donated);
  text += impl_->last->rules_text;
  return impl_->last->program ? text + impl_->last->program->report().text() : text;
}

std::string CompiledBase::graph_text() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->last ? ir::print(impl_->last->graph) : std::string();
}

std::shared_ptr<const TracedProgram> CompiledBase::last_trace(const char* who) const {
  std::lock_guard lock(impl_->mutex);
  if (!impl_->last)
    fail(ErrorKind::State,
         "{}: {}: not called yet, so that nothing is traced: call the function once before",
         impl_->options.name, who);
  return impl_->last;
}

void CompiledBase::export_library(const std::string& path) const {
  detail::export_library(*last_trace("export_library"), path);
}

void CompiledBase::export_onnx(const std::string& path) const {
  detail::export_onnx(*last_trace("export_onnx"), impl_->options.name, path);
}

std::size_t CompiledBase::traces() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->entries.size();
}

} // namespace egret::detail

// A traced function as a C library or an ONNX model: which of its tensors are parameters, which are
// part of it.
#include "compiler/c_library.h"
#include "onnx/export.h"
#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/printable.h"
#include "tensor/engine.h"
#include "tensor/trace.h"

#include <fmt/format.h>

#include <deque>
#include <limits>
#include <map>

namespace egret::detail {

namespace {

using backend::c::LibraryInterface;
using Binding = TracedProgram::Binding;
using Value = TracedProgram::Value;

/// Of all values in one library: compilers take long for the text of more.
constexpr std::size_t kMostLibraryBytes = std::size_t{64} << 20;

/// The graph of a trace, and what its inputs and results are to those who call it.
class TraceExport {
public:
  /// What becomes of new values of states that may be written over the old ones.
  enum class States : std::uint8_t { Overwritten, Results };

  TraceExport(const TracedProgram& traced, std::string name, States states,
              std::size_t most_bytes = std::numeric_limits<std::size_t>::max())
      : traced_(traced), graph_(traced.graph), changed_(traced.sources.size()),
        most_bytes_(most_bytes) {
    interface_.name = std::move(name);
    for (const TracedProgram::State& state : traced.states)
      if (state.has_source)
        changed_[state.source] = true;
    for (std::size_t slot = 0; slot < traced_.bindings.size(); ++slot)
      add_input(slot);
    int number = 0;
    const std::string result = traced_.results.size() == 1 ? "result" : "result{}";
    for (const Value& value : traced_.results)
      add_result(value, fmt::format(fmt::runtime(result), number++));
    for (const TracedProgram::State& state : traced_.states)
      if (!state.value.donated || states == States::Results)
        add_result(state.value, state.has_source ? traced_.names[state.source] + "_new"
                                                 : fmt::format("argument_new{}", state.leaf));
  }

  backend::c::LibraryText library() const {
    const runtime::ThreadDevice device(device_for(traced_.placement));
    compiler::Options options = traced_.options;
    runtime::Runtime& runtime = runtime::Runtime::instance();
    runtime.complete(options);
    return compiler::c_library(graph_, options, interface_, runtime.device());
  }

  void write_onnx(const std::string& path) const {
    onnx::Interface interface {
      .name = interface_.name, .inputs = {}, .results = {}, .lines = {}
    };
    for (const LibraryInterface::Input& input : interface_.inputs)
      interface.inputs.push_back({input.name, input.value, input.place});
    for (const LibraryInterface::Result& result : interface_.results)
      interface.results.push_back({kind_of(result.kind), result.name, result.number, result.dtype,
                                   result.shape, result.value});
    onnx::write_model(path, graph_, interface);
  }

private:
  static onnx::Interface::Result::Kind kind_of(LibraryInterface::Result::Kind kind) {
    switch (kind) {
    case LibraryInterface::Result::Kind::Output:
      return onnx::Interface::Result::Kind::Output;
    case LibraryInterface::Result::Kind::Input:
      return onnx::Interface::Result::Kind::Input;
    case LibraryInterface::Result::Kind::Value:
      break;
    }
    return onnx::Interface::Result::Kind::Value;
  }

  std::span<const std::byte> bytes_of(const NodePtr& node) {
    const std::size_t size = static_cast<std::size_t>(element_count(node->form.shape).value()) *
                             size_of(node->form.dtype);
    total_ += size;
    if (total_ > most_bytes_)
      fail(ErrorKind::Unsupported,
           "library: the values that {} captures take more than {} MiB: pass large weights as "
           "arguments",
           interface_.name, most_bytes_ >> 20);
    std::vector<std::byte>& bytes = values_.emplace_back(size);
    if (size > 0)
      runtime::Runtime::instance().copy_out(bytes.data(), storage_of(node), size);
    return bytes;
  }

  // What is bound now where the function found it.
  NodePtr captured(std::size_t source) const {
    const TraceSource& found = traced_.sources[source];
    std::shared_ptr<Handle> handle = found.handle;
    for (const OwnerPtr& owner : found.reached_by)
      if (owner->object)
        handle = Access::handle(*owner->object);
    if (handle->dtype != found.handle->dtype || handle->shape != found.handle->shape)
      fail(ErrorKind::State,
           "export: {} is {}{} now and was {}{}: call the function again before it is exported",
           traced_.names[source], name_of(handle->dtype), to_string(handle->shape),
           name_of(found.handle->dtype), to_string(found.handle->shape));
    const NodePtr node = handle->node();
    evaluate(node, "export");
    return node;
  }

  // A parameter, or what is captured and keeps its value.
  LibraryInterface::Input input_from(std::size_t source) {
    LibraryInterface::Input input{traced_.names[source], {}, source};
    if (traced_.sources[source].kind == TraceSource::Kind::Captured && !changed_[source])
      input.value = bytes_of(captured(source));
    return input;
  }

  void add_input(std::size_t slot) {
    const Binding& binding = traced_.bindings[slot];
    if (binding.kind == Binding::Kind::Source)
      interface_.inputs.push_back(input_from(binding.source));
    else
      interface_.inputs.push_back({"", bytes_of(binding.constant)});
  }

  // The graph's input of a source, a new one if nothing else needs it.
  std::size_t input_of(std::size_t source) {
    for (std::size_t slot = 0; slot < traced_.bindings.size(); ++slot)
      if (traced_.bindings[slot].kind == Binding::Kind::Source &&
          traced_.bindings[slot].source == source)
        return slot;
    const auto [place, fresh] = added_.emplace(source, graph_.inputs().size());
    if (fresh) {
      graph_.input(traced_.names[source], traced_.dtypes[source], traced_.shapes[source]);
      interface_.inputs.push_back(input_from(source));
    }
    return place->second;
  }

  void add_result(const Value& value, std::string name) {
    LibraryInterface::Result result;
    result.name = std::move(name);
    switch (value.kind) {
    case Value::Kind::Empty:
      return;
    case Value::Kind::Output: {
      const ir::Node& node = graph_[graph_.outputs[value.number]];
      result.number = value.number;
      result.dtype = node.dtype;
      result.shape = node.shape;
      break;
    }
    case Value::Kind::Source: {
      result.kind = LibraryInterface::Result::Kind::Input;
      result.number = input_of(value.number);
      const ir::Node& node = graph_[graph_.inputs()[result.number]];
      result.dtype = node.dtype;
      result.shape = node.shape;
      break;
    }
    case Value::Kind::Constant:
      result.kind = LibraryInterface::Result::Kind::Value;
      result.dtype = value.constant->form.dtype;
      result.shape = value.constant->form.shape;
      result.value = bytes_of(value.constant);
      break;
    }
    interface_.results.push_back(std::move(result));
  }

  const TracedProgram& traced_;
  ir::Graph graph_;
  std::vector<bool> changed_; // by source: the function gives it another value
  LibraryInterface interface_;
  std::map<std::size_t, std::size_t> added_; // inputs by source
  std::deque<std::vector<std::byte>> values_;
  std::size_t most_bytes_, total_ = 0;
};

} // namespace

void export_library(const TracedProgram& traced, const std::string& path) {
  const std::string name = compiler::library_name(path);
  if (!traced.program)
    fail(ErrorKind::Value, "library: {} computes nothing", printable(name));
  compiler::write_c_library(
      path,
      TraceExport(traced, name, TraceExport::States::Overwritten, kMostLibraryBytes).library());
}

void export_onnx(const TracedProgram& traced, const std::string& name, const std::string& path) {
  output_target("export_onnx", path);
  TraceExport(traced, name, TraceExport::States::Results).write_onnx(path);
}

} // namespace egret::detail

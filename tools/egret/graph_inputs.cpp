#include "graph_inputs.h"

#include "compiler/bisect.h"
#include "console.h"
#include "egret/io.h"
#include "runtime/runtime.h"
#include "support/fail.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

namespace egret::tool {

std::map<std::string, std::string> files_by_name(const std::vector<std::string>& pairs,
                                                 const char* option) {
  std::map<std::string, std::string> files;
  for (const auto& pair : pairs) {
    auto equal = pair.find('=');
    if (equal == 0 || equal == std::string::npos || equal + 1 == pair.size())
      throw UsageError(fmt::format("{} takes NAME=FILE, not '{}'", option, pair));
    std::string name = pair.substr(pair[0] == '%' ? 1 : 0, equal - (pair[0] == '%' ? 1 : 0));
    if (!files.emplace(name, pair.substr(equal + 1)).second)
      throw UsageError(fmt::format("{} names '{}' twice", option, name));
  }
  return files;
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

void Dims::bind(const std::string& name, const Shape& expected,
                const std::vector<std::int64_t>& sizes) {
  bool fits = expected.size() == sizes.size();
  for (std::size_t i = 0; fits && i < sizes.size(); ++i)
    if (expected[i].is_symbol()) {
      auto [place, added] = values_.emplace(expected[i].str(), sizes[i]);
      fits = place->second == sizes[i] && sizes[i] >= expected[i].lower() &&
             sizes[i] <= expected[i].upper() && sizes[i] % expected[i].divisor() == 0;
    } else {
      fits = value(expected[i]) == sizes[i];
    }
  if (!fits)
    fail(ErrorKind::Shape, "run: input '{}' is {} in the graph and [{}] in the file", name,
         to_string(expected), fmt::join(sizes, ","));
}

std::int64_t Dims::value(const Expr& e) const {
  return evaluate(e, [&](const Expr& symbol) {
    auto found = values_.find(symbol.str());
    if (found == values_.end())
      fail(ErrorKind::Shape, "run: no input gives the size {}", symbol.str());
    return found->second;
  });
}

std::vector<std::int64_t> Dims::values(const Shape& shape) const {
  std::vector<std::int64_t> sizes;
  for (const Expr& e : shape)
    sizes.push_back(value(e));
  return sizes;
}

GraphInputs load_inputs(const ir::Graph& graph, const std::vector<std::string>& pairs,
                        std::optional<std::uint64_t> seed) {
  auto files = files_by_name(pairs, "--input");
  std::vector<std::string> names;
  for (ir::NodeId id : graph.inputs())
    names.push_back(graph[id].attrs.name);
  for (const auto& [name, file] : files)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UsageError(
          fmt::format("the graph has no input '{}'; its inputs: {}", name, listed(names)));
  GraphInputs inputs;
  if (seed)
    inputs.arrays = compiler::random_inputs(graph, *seed);
  else
    inputs.arrays.resize(names.size());
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ir::Node& node = graph[graph.inputs()[i]];
    auto file = files.find(names[i]);
    if (file == files.end()) {
      if (!seed)
        throw UsageError(fmt::format("input '{0}' has no file: give --input {0}=FILE.npy ({1}{2})",
                                     names[i], name_of(node.dtype), to_string(node.shape)));
      inputs.dims.bind(names[i], node.shape, inputs.arrays[i].dims);
      continue;
    }
    Tensor value = io::load_npy(file->second);
    if (value.dtype() != node.dtype)
      fail(ErrorKind::DType, "run: input '{}' is {} in the graph and {} in {}", names[i],
           name_of(node.dtype), name_of(value.dtype()), file->second);
    inputs.dims.bind(names[i], node.shape, value.sizes());
    inputs.arrays[i] = backend::reference::HostArray(node.dtype, value.sizes());
    inputs.arrays[i].bytes = value.to_bytes();
  }
  return inputs;
}

RunInputs run_inputs(const ir::Graph& graph,
                     const std::vector<backend::reference::HostArray>& arrays) {
  auto& runtime = runtime::Runtime::instance();
  RunInputs inputs;
  inputs.shapes.resize(arrays.size());
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const auto& array = arrays[i];
    inputs.shapes[i] = Shape(array.dims.begin(), array.dims.end());
    runtime::RunInput slot{.shape = &inputs.shapes[i]};
    if (graph[graph.inputs()[i]].attrs.by_value) {
      std::memcpy(&slot.bits, array.bytes.data(), std::min(array.bytes.size(), sizeof slot.bits));
    } else {
      slot.storage = runtime.allocate(array.bytes.size());
      runtime.copy_in(slot.storage, array.bytes.data(), array.bytes.size());
    }
    inputs.slots.push_back(std::move(slot));
  }
  return inputs;
}

} // namespace egret::tool

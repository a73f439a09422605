// egret run: a graph in its text form, with arrays from and to NPY files.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "effort_options.h"
#include "graph_file.h"

#include "egret/io.h"
#include "egret/ir.h"
#include "runtime/runtime.h"
#include "support/fail.h"

#include <CLI/CLI.hpp>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct RunOptions {
  std::string graph;
  std::vector<std::string> inputs, outputs;
  std::string device;
  EffortOptions effort;
  bool fuse = true, explain = false, json = false;
};

/// "x=x.npy" and the like, by name.
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

/// The labels of the graph's outputs: what follows % in the last line of its text.
std::vector<std::string> output_labels(const std::string& text) {
  std::vector<std::string> labels;
  std::string line = text.substr(text.rfind("outputs"));
  for (std::size_t at = line.find('%'); at != std::string::npos; at = line.find('%', at + 1)) {
    auto end = line.find_first_of(", \t\r\n#", at);
    labels.push_back(line.substr(at + 1, end == std::string::npos ? end : end - at - 1));
  }
  return labels;
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

/// The sizes that the inputs' shapes give to the graph's symbols; every dim is checked.
class Dims {
public:
  void bind(const std::string& name, const Shape& expected,
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
  std::int64_t value(const Expr& e) const {
    return evaluate(e, [&](const Expr& symbol) {
      auto found = values_.find(symbol.str());
      if (found == values_.end())
        fail(ErrorKind::Shape, "run: no input gives the size {}", symbol.str());
      return found->second;
    });
  }
  std::vector<std::int64_t> values(const Shape& shape) const {
    std::vector<std::int64_t> sizes;
    for (const Expr& e : shape)
      sizes.push_back(value(e));
    return sizes;
  }

private:
  std::map<std::string, std::int64_t> values_;
};

struct Inputs {
  std::vector<Shape> shapes; ///< what RunInput points to
  std::vector<runtime::RunInput> slots;
};

Inputs load_inputs(const ir::Graph& graph, const RunOptions& options, Dims& dims) {
  auto files = files_by_name(options.inputs, "--input");
  std::vector<std::string> names;
  for (ir::NodeId id : graph.inputs())
    names.push_back(graph[id].attrs.name);
  for (const auto& [name, file] : files)
    if (std::find(names.begin(), names.end(), name) == names.end())
      throw UsageError(
          fmt::format("the graph has no input '{}'; its inputs: {}", name, listed(names)));
  Inputs inputs;
  inputs.shapes.resize(names.size());
  auto& runtime = runtime::Runtime::instance();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const ir::Node& node = graph[graph.inputs()[i]];
    auto file = files.find(names[i]);
    if (file == files.end())
      throw UsageError(fmt::format("input '{0}' has no file: give --input {0}=FILE.npy ({1}{2})",
                                   names[i], name_of(node.dtype), to_string(node.shape)));
    Tensor value = io::load_npy(file->second);
    if (value.dtype() != node.dtype)
      fail(ErrorKind::DType, "run: input '{}' is {} in the graph and {} in {}", names[i],
           name_of(node.dtype), name_of(value.dtype()), file->second);
    dims.bind(names[i], node.shape, value.sizes());
    auto bytes = value.to_bytes();
    inputs.shapes[i] = value.shape();
    runtime::RunInput slot{.shape = &inputs.shapes[i]};
    if (node.attrs.by_value) {
      std::memcpy(&slot.bits, bytes.data(), std::min(bytes.size(), sizeof slot.bits));
    } else {
      slot.storage = runtime.allocate(bytes.size());
      runtime.copy_in(slot.storage, bytes.data(), bytes.size());
    }
    inputs.slots.push_back(std::move(slot));
  }
  return inputs;
}

nlohmann::ordered_json json_of(const std::string& name, const Tensor& value) {
  nlohmann::ordered_json json = {
      {"name", name}, {"dtype", name_of(value.dtype())}, {"shape", value.sizes()}};
  if (is_float(value.dtype()))
    json["values"] = value.to_vector<double>();
  else
    json["values"] = value.to_vector<std::int64_t>();
  return json;
}

void run(const RunOptions& options) {
  std::string text = text_of_file(options.graph);
  const ir::Graph graph = graph_of_text(options.graph, text);
  auto labels = output_labels(text);
  auto files = files_by_name(options.outputs, "--output");
  for (const auto& [name, file] : files)
    if (std::find(labels.begin(), labels.end(), name) == labels.end())
      throw UsageError(
          fmt::format("the graph has no output '{}'; its outputs: {}", name, listed(labels)));

  Dims dims;
  Inputs inputs = load_inputs(graph, options, dims);
  auto& runtime = runtime::Runtime::instance();
  const EffortInForce effort(options.effort);
  auto program = runtime.program(graph, {.fuse = options.fuse});
  auto results = program->run(inputs.slots);
  if (options.explain)
    log_line(program->report().text());
  for (std::size_t i = 0; i < results.size(); ++i) {
    const ir::Node& node = graph[graph.outputs[i]];
    auto sizes = dims.values(node.shape);
    Shape shape(sizes.begin(), sizes.end());
    std::size_t count = size_of(node.dtype);
    for (std::int64_t size : sizes)
      count *= static_cast<std::size_t>(size);
    std::vector<std::byte> bytes(count);
    runtime.copy_out(bytes.data(), results[i], bytes.size());
    Tensor value = from_bytes(node.dtype, shape, bytes);
    if (auto file = files.find(labels[i]); file != files.end())
      io::save_npy(file->second, value);
    else if (options.json)
      fmt::print("{}\n", json_of(labels[i], value).dump());
    else
      fmt::print("%{} = {}\n", labels[i], to_string(value));
  }
}

} // namespace

void add_run_command(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  auto* command = app.add_subcommand("run", "Run a graph in its text form (docs/graph.md)");
  command->footer("For example, with double.txt holding\n"
                  "  %x: f32[3] = input \"x\"\n"
                  "  %y: f32[3] = add(%x, %x)\n"
                  "  outputs %y\n"
                  "  egret run double.txt --input x=x.npy --output y=y.npy");
  command->add_option("graph", options->graph, "The graph's text")
      ->required()
      ->check(CLI::ExistingFile);
  command->add_option("-i,--input", options->inputs, "NAME=FILE.npy for each input")->take_all();
  command
      ->add_option("-o,--output", options->outputs,
                   "LABEL=FILE.npy; outputs without one are printed")
      ->take_all();
  add_effort_options(*command, options->effort);
  command->add_flag("!--no-fuse", options->fuse, "One kernel an operation");
  command->add_flag("--explain", options->explain, "Say on stderr what the compiler did");
  command->add_flag("--json", options->json, "Print outputs as JSON, one a line");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    run(*options);
  });
}

} // namespace egret::tool

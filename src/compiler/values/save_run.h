// Runs of a graph whose values are looked at, launch by launch.
#pragma once

#include "backend/common/device.h"
#include "compiler/compile.h"
#include "compiler/values/saved_run.h"
#include "ir/text.h"

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::compiler {

/// Where a graph was read from.
struct GraphSource {
  std::string file, text;
  std::vector<int> lines; ///< by node, from 1
};

/// A compiled graph, where its nodes come from, and the record of its compilation (docs/seeing.md),
/// line by line.
struct TracedCompilation {
  Compiled compiled;
  RunDescription run; ///< all but its identity
  std::vector<std::string> record;
};
TracedCompilation compile_traced(const ir::Graph& graph, const GraphSource& source,
                                 const Options& options, backend::Device& device,
                                 KernelCache& cache);

struct SaveOptions {
  std::int64_t most_bytes = std::int64_t{1} << 30; ///< of elements; beyond that only summaries
};
struct SavedCounts {
  std::size_t values = 0, whole = 0;  ///< in the folder
  std::size_t launches = 0, kept = 0; ///< `kept`: launches whose values the folder had
};

/// Runs the plan launch by launch and saves each value that it stores, and the inputs; the record
/// is beside them in record.jsonl. With `device` null the interpreter runs the kernels' programs.
/// `outputs`, if not null, becomes the graph's outputs.
SavedCounts save_run(const TracedCompilation& traced, const ir::Graph& graph,
                     std::span<const backend::reference::HostArray> inputs, backend::Device* device,
                     const std::filesystem::path& folder, const SaveOptions& options = {},
                     std::vector<backend::reference::HostArray>* outputs = nullptr);

/// The same of the reference, which computes every node of the graph as it was given, one by one.
SavedCounts save_reference_run(const ir::Graph& graph, const GraphSource& source,
                               std::span<const backend::reference::HostArray> inputs,
                               const std::filesystem::path& folder, const SaveOptions& options = {},
                               std::vector<backend::reference::HostArray>* outputs = nullptr);

/// The first NaN or infinity that is made of finite values.
struct NonFinite {
  std::size_t launch = 0;
  std::string kernel, schedule;
  ir::NodeId node = ir::kNoNode;  ///< of the compiled graph; that makes it, by the reference
  std::string text;               ///< the node, with its lines
  std::string element;            ///< "element [0,2] is inf, of 89.5"
  std::vector<std::string> rules; ///< that made the node
  bool only_kernel = false; ///< by the reference all is finite: the kernel is to blame; `node` is
                            ///< the value that it stored
  std::string message() const; ///< for people
};

/// Runs the plan launch by launch up to the first launch that stores a NaN or infinity and reads
/// only finite values, and finds the node in it by the reference. Nothing where there is none.
std::optional<NonFinite> find_nonfinite(const TracedCompilation& traced, const ir::Graph& graph,
                                        std::span<const backend::reference::HostArray> inputs,
                                        backend::Device* device);

} // namespace egret::compiler

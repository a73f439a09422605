#include "run_values.h"

#include "console.h"

#include "compiler/plan_runner.h"
#include "compiler/values/save_run.h"
#include "ir/text.h"
#include "runtime/runtime.h"
#include "support/printable.h"

#include <CLI/CLI.hpp>

#include <utility>

namespace egret::tool {

using backend::reference::HostArray;

std::vector<HostArray> run_with_values(const std::string& file, const std::string& text,
                                       const std::vector<HostArray>& inputs,
                                       compiler::Options options, const ValueOptions& wishes) {
  ir::LocatedGraph located = ir::parse_located(text);
  const ir::Graph& graph = located.graph;
  const compiler::GraphSource source{file, text, std::move(located.lines)};
  const compiler::SaveOptions save{.most_bytes = wishes.most_bytes};
  auto& runtime = runtime::Runtime::instance();
  std::vector<HostArray> outputs;
  compiler::SavedCounts counts;
  if (runtime.engine() == runtime::Engine::Reference) {
    if (wishes.find_nan)
      throw UsageError("--find-nan looks at kernels; EGRET_ENGINE=reference has none");
    counts = save_reference_run(graph, source, inputs, wishes.folder, save, &outputs);
  } else {
    runtime.complete(options);
    compiler::KernelCache kernels;
    backend::Device& device = runtime.device();
    const auto traced = compile_traced(graph, source, options, device, kernels);
    if (wishes.find_nan) {
      if (const auto found = find_nonfinite(traced, graph, inputs, &device)) {
        fmt::print("{}", terminal_text(found->message()));
        throw CLI::RuntimeError(kFailed);
      }
      log("no NaN or infinity is made of finite values in {} launches", traced.run.launches.size());
    }
    if (wishes.folder.empty()) {
      std::vector<HostArray> arrays = inputs;
      return run_plan(traced.compiled, graph, arrays, &device);
    }
    counts = save_run(traced, graph, inputs, &device, wishes.folder, save, &outputs);
  }
  log("{}: {} values, {} of them whole; {} of {} launches were there before", wishes.folder,
      counts.values, counts.whole, counts.kept, counts.launches);
  return outputs;
}

} // namespace egret::tool

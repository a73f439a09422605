#include "runtime/reference_program.h"

#include "backend/reference/reference.h"
#include "runtime/count.h"
#include "runtime/host_arrays.h"

#include <cstring>

namespace egret::runtime {
namespace {

using backend::reference::HostArray;

class ReferenceProgram final : public Program {
public:
  ReferenceProgram(const ir::Graph& graph, const compiler::Options& options,
                   std::shared_ptr<Pool> pool)
      : graph_(graph), options_(options), pool_(std::move(pool)) {
    report_.graph = graph;
    report_.ops_recorded = report_.ops_normalized = graph.size();
  }

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override {
    const std::vector<HostArray> arrays = host_arrays(graph_, inputs);
    std::vector<StoragePtr> outputs;
    const auto values = backend::reference::execute(graph_, arrays);
    for (std::size_t o = 0; o < values.size(); ++o) {
      const std::int64_t state = o < options_.outputs.size() ? options_.outputs[o].state_input : -1;
      StoragePtr storage = state >= 0 ? inputs[static_cast<std::size_t>(state)].storage
                                      : pool_->allocate(values[o].bytes.size());
      if (!values[o].bytes.empty())
        std::memcpy(storage->data(), values[o].bytes.data(), values[o].bytes.size());
      outputs.push_back(std::move(storage));
    }
    return outputs;
  }
  const compiler::CompileReport& report() const override { return report_; }

private:
  ir::Graph graph_;
  compiler::Options options_;
  std::shared_ptr<Pool> pool_;
  compiler::CompileReport report_;
};

} // namespace

std::shared_ptr<const Program> make_reference_program(const ir::Graph& graph,
                                                      const compiler::Options& options,
                                                      std::shared_ptr<Pool> pool) {
  return std::make_shared<ReferenceProgram>(graph, options, std::move(pool));
}

} // namespace egret::runtime

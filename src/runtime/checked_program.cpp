#include "runtime/checked_program.h"

#include "backend/reference/reference.h"
#include "compiler/bisect.h"
#include "egret/checked_execution.h"
#include "runtime/host_arrays.h"

#include <fmt/format.h>

#include <utility>

namespace egret::runtime {
namespace {

namespace reference = backend::reference;
using reference::HostArray;

class CheckedProgram final : public Program {
public:
  CheckedProgram(std::shared_ptr<const Program> program, const ir::Graph& graph,
                 const compiler::Options& options, backend::Device& device)
      : program_(std::move(program)), graph_(graph), options_(options), device_(device) {}

  std::vector<StoragePtr> run(std::span<const RunInput> inputs) const override {
    const std::vector<HostArray> arrays = host_arrays(graph_, inputs); // states are overwritten
    std::vector<StoragePtr> outputs = program_->run(inputs);
    const std::vector<reference::Expected> expected = reference::expect(graph_, arrays);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      check(o, outputs[o], expected[o], arrays);
    for (std::size_t o = 0; o < outputs.size(); ++o)
      if (reference::judges_little(expected[o])) {
        check_steps(o, arrays);
        break;
      }
    return outputs;
  }
  const compiler::CompileReport& report() const override { return program_->report(); }
  std::string plan() const override { return program_->plan(); }
  std::string loops() const override { return program_->loops(); }
  std::string schedules() const override { return program_->schedules(); }
  std::string loop_terms() const override { return program_->loop_terms(); }
  std::string code() const override { return program_->code(); }
  std::size_t bytes() const override { return program_->bytes(); }

private:
  void check(std::size_t output, const StoragePtr& storage, const reference::Expected& expected,
             std::span<const HostArray> inputs) const {
    HostArray actual = expected.value;
    if (!actual.bytes.empty())
      storage->device().copy_out(actual.bytes.data(), storage->data(), actual.bytes.size());
    const auto found =
        reference::compare(actual, expected, fmt::format("output {}", output),
                           {.scale = compiler::tolerance_scale(options_.rules.allowed)});
    if (found.ok)
      return;
    const DType type = actual.dtype;
    const reference::Estimate want = expected.at(found.furthest);
    std::string culprit = blamed(inputs);
    throw WrongResult(fmt::format("checked execution: {}; the furthest is element {}: {}, expected "
                                  "{} (tolerance {:.3g}){}{}",
                                  found.message, found.furthest,
                                  reference::text_of(type, actual.at(found.furthest)),
                                  reference::text_of(type, want.value), want.error,
                                  culprit.empty() ? "" : "; ", culprit),
                      output, found.furthest, culprit);
  }

  // An output is right within tolerances that say little: what each step makes of its operands is
  // compared, too.
  void check_steps(std::size_t output, std::span<const HostArray> inputs) const {
    compiler::KernelCache kernels;
    const compiler::BisectReport report =
        compiler::bisect(graph_, inputs, options_, device_, kernels);
    if (report.culprit == compiler::BisectReport::Culprit::None)
      return;
    const std::string culprit = first_line(report.text());
    throw WrongResult(fmt::format("checked execution: the tolerances of output {} are too wide to "
                                  "judge it, but {}; {}",
                                  output, culprit, report.detail),
                      output, 0, culprit);
  }

  static std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

  // The same run again, step by step.
  std::string blamed(std::span<const HostArray> inputs) const {
    try {
      compiler::KernelCache kernels;
      const compiler::BisectReport report =
          compiler::bisect(graph_, inputs, options_, device_, kernels);
      if (report.culprit == compiler::BisectReport::Culprit::None)
        return "run step by step it is right";
      return first_line(report.text());
    } catch (const std::exception&) { // what is known already is worth more than this
      return {};
    }
  }

  std::shared_ptr<const Program> program_;
  ir::Graph graph_;
  compiler::Options options_;
  backend::Device& device_;
};

} // namespace

std::shared_ptr<const Program> make_checked_program(std::shared_ptr<const Program> program,
                                                    const ir::Graph& graph,
                                                    const compiler::Options& options,
                                                    backend::Device& device) {
  return std::make_shared<CheckedProgram>(std::move(program), graph, options, device);
}

} // namespace egret::runtime

#include "compiler/builders.h"

#include "compiler/candidate_measurement.h"
#include "compiler/requested_schedules.h"
#include "compiler/search/candidates.h"
#include "compiler/search/cost_model.h"
#include "egret/error.h"
#include "kernel/schedule.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

namespace egret {
namespace compiler {

using ir::NodeId;

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<const KernelBuilder>> builders;
  std::uint64_t changes = 0;
  std::atomic<std::uint64_t> number{0};

  void changed() { number = builders.empty() ? 0 : ++changes; }
};

Registry& registry() noexcept {
  static auto* const all = new Registry; // outlives scopes of static duration
  return *all;
}

// A claim whose schedule fits its region.
struct Offer {
  kernel::Chosen kernel;
  double seconds;
  std::size_t line; ///< of the report
};

class Asker {
public:
  Asker(const ir::Graph& graph, const Options& options, const kernel::Target& target,
        backend::Device& device)
      : graph_(graph), options_(options), target_(target), device_(device),
        machine_(usual_machine(target)) {}

  void ask(const BuiltRegion& built, kernel::KernelEntry& entry) {
    KernelSite site;
    site.name = built.region.name;
    site.device = target_.device;
    site.graph = graph_of(graph_, built);
    site.loops = kernel::print(built.region);
    site.schedule = kernel::to_string(entry.schedule);
    site.seconds = seconds_of(entry.program, built.region);
    std::vector<Offer> offers;
    for (const auto& builder : options_.builders)
      if (const std::optional<KernelClaim> claim = builder->claim(site))
        consider(*builder, *claim, built.region, offers);
    std::stable_sort(offers.begin(), offers.end(),
                     [](const Offer& a, const Offer& b) { return a.seconds < b.seconds; });
    for (Offer& offer : offers) {
      ClaimedKernel& line = lines_[offer.line];
      line.seconds = offer.seconds;
      line.against = site.seconds;
      if (!(offer.seconds < site.seconds)) {
        line.outcome = "another kernel is faster";
        continue;
      }
      if (std::string wrong = verify(built.region, offer.kernel.program); !wrong.empty()) {
        line.outcome = "refused: " + wrong;
        continue;
      }
      line.won = true;
      line.outcome = "chosen";
      site.seconds = offer.seconds;
      entry.schedule = std::move(offer.kernel.schedule);
      entry.program = std::move(offer.kernel.program);
      entry.program.name = entry.region.name;
      entry.program_hash = kernel::hash_of(entry.program);
    }
  }

  std::vector<ClaimedKernel> lines() && { return std::move(lines_); }

private:
  void consider(const KernelBuilder& builder, const KernelClaim& claim,
                const kernel::Region& region, std::vector<Offer>& offers) {
    ClaimedKernel& line = lines_.emplace_back();
    line.kernel = region.name;
    line.builder = builder.name;
    line.schedule = claim.schedule;
    const kernel::Region* const regions[] = {&region};
    try {
      auto lowered = lower_requested({{region.name, claim.schedule}}, regions, target_);
      kernel::Chosen& kernel = lowered.at(0);
      const double seconds = claim.seconds ? *claim.seconds : seconds_of(kernel.program, region);
      if (!(seconds >= 0))
        fail(ErrorKind::Value, "a score of {} seconds is none", seconds);
      offers.push_back({std::move(kernel), seconds, lines_.size() - 1});
    } catch (const Error& error) {
      line.outcome = error.what();
    }
  }

  double seconds_of(const kernel::KernelProgram& program, const kernel::Region& region) const {
    return predict(program, region, target_, machine_, sizes_to_try(region));
  }

  // Why it is not to be used; empty: it is right.
  std::string verify(const kernel::Region& region, kernel::KernelProgram program) const {
    program.name = region.name;
    CandidateMeasurement trial;
    trial.region = region;
    trial.program = std::move(program);
    trial.sizes = sizes_to_try(region);
    trial.workers = options_.workers;
    const MeasurementResult result = measure_candidate(device_, trial);
    return result.ok() ? std::string() : result.message;
  }

  const ir::Graph& graph_;
  const Options& options_;
  const kernel::Target& target_;
  backend::Device& device_;
  const Machine machine_;
  std::vector<ClaimedKernel> lines_;
};

} // namespace

std::pair<std::vector<std::shared_ptr<const KernelBuilder>>, std::uint64_t> registered_builders() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  return {all.builders, all.number.load(std::memory_order_relaxed)};
}

std::uint64_t builders_number() noexcept {
  return registry().number.load(std::memory_order_relaxed);
}

ir::Graph graph_of(const ir::Graph& program, const BuiltRegion& built) {
  ir::Graph graph;
  std::map<NodeId, NodeId> made;
  for (const NodeId operand : built.operands) {
    const ir::Node& value = program[operand];
    const bool own = std::find(built.outputs.begin(), built.outputs.end(), operand) !=
                     built.outputs.end(); // which it reads again
    if (!own && !made.contains(operand))
      made[operand] = graph.input(fmt::format("x{}", graph.inputs().size()), value.dtype,
                                  value.shape, value.op == Op::Input && value.attrs.by_value);
  }
  std::vector<bool> needed(program.size(), false);
  for (const NodeId output : built.outputs)
    needed[output] = true;
  for (auto id = static_cast<NodeId>(program.size()); id-- > 0;)
    if (needed[id] && !made.contains(id))
      for (const NodeId input : program[id].inputs)
        needed[input] = true;
  for (NodeId id = 0; id < program.size(); ++id) {
    if (!needed[id] || made.contains(id))
      continue;
    const ir::Node& node = program[id];
    if (node.op == Op::Input) {
      made[id] = graph.input(fmt::format("x{}", graph.inputs().size()), node.dtype, node.shape,
                             node.attrs.by_value);
      continue;
    }
    std::vector<NodeId> inputs;
    for (const NodeId input : node.inputs)
      inputs.push_back(made.at(input));
    made[id] = graph.add(node.op, inputs, node.attrs);
  }
  for (const NodeId output : built.outputs)
    graph.outputs.push_back(made.at(output));
  return graph;
}

std::vector<ClaimedKernel> ask_builders(const ir::Graph& graph,
                                        const std::vector<BuiltRegion>& regions,
                                        const Options& options, const kernel::Target& target,
                                        backend::Device& device, Proposed& proposed) {
  Asker asker(graph, options, target, device);
  std::vector<bool> asked(proposed.entries.size(), false);
  for (std::size_t i = 0; i < regions.size(); ++i) {
    const auto entry = static_cast<std::size_t>(proposed.entry_of[i]);
    if (!asked[entry])
      asker.ask(regions[i], proposed.entries[entry]);
    asked[entry] = true;
  }
  return std::move(asker).lines();
}

} // namespace compiler

BuilderScope::BuilderScope(KernelBuilder builder)
    : builder_(std::make_shared<const KernelBuilder>(std::move(builder))) {
  if (!builder_->claim)
    fail(ErrorKind::Value, "BuilderScope: the builder '{}' has no function that claims",
         builder_->name);
  auto& all = compiler::registry();
  std::lock_guard lock(all.mutex);
  all.builders.push_back(builder_);
  all.changed();
}

BuilderScope::~BuilderScope() {
  auto& all = compiler::registry();
  std::lock_guard lock(all.mutex);
  std::erase(all.builders, builder_);
  all.changed();
}

} // namespace egret

#include "compiler/pipeline.h"

#include "compiler/attention_delta.h"
#include "compiler/axis_orders.h"
#include "compiler/batching.h"
#include "compiler/builders.h"
#include "compiler/canonical.h"
#include "compiler/centered_sums.h"
#include "compiler/chains.h"
#include "compiler/fuse_column_reductions.h"
#include "compiler/gather_tables.h"
#include "compiler/join_scatters.h"
#include "compiler/own_maxima.h"
#include "compiler/pass_forms.h"
#include "compiler/placed_products.h"
#include "compiler/plan_memory.h"
#include "compiler/prepare_outputs.h"
#include "compiler/rebase_operands.h"
#include "compiler/rejoin_slices.h"
#include "compiler/resolve_slices.h"
#include "compiler/roll_recurrences.h"
#include "compiler/row_gathers.h"
#include "compiler/search/layout_moves.h"
#include "compiler/sink_reshapes.h"
#include "compiler/split_reductions.h"
#include "compiler/split_slices.h"
#include "compiler/unrolled_products.h"
#include "egret/passes.h"
#include "saturate/saturate.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <utility>

namespace egret::compiler {

namespace {

/// Graphs of the rules' that fusion plans are made for, where a search may take any of them.
constexpr std::size_t kCandidates = 3;

using C = Compilation;

// When a pass applies.

bool searches(const C& c) {
  return c.options.effort.value_or(Effort::None) != Effort::None && !c.options.deterministic;
}
bool is_split(const C& c) {
  return c.split.has_value();
}
bool may_fold(const C& c) {
  return searches(c) && c.options.fuse && !c.options.steady.empty();
}
bool has_layouts(const C& c) {
  return !c.choices.layout_changes.empty();
}
bool joins_products(const C& c) { // but chunks are not put together again
  return c.options.fuse && c.options.chunks.empty();
}
bool rolls(const C& c) { // whole scans may not fit in a limit
  return joins_products(c) && !c.options.memory_limit;
}
bool searches_and_rolls(const C& c) {
  return searches(c) && rolls(c);
}
bool joins_scatters(const C& c) {
  return c.options.fuse;
}
bool has_chunks(const C& c) {
  return !c.options.chunks.empty();
}
bool has_builders(const C& c) {
  return !c.options.builders.empty() && c.device;
}
bool fuses_columns(const C& c) {
  return c.choices.column_reductions;
}
bool may_batch(const C& c) {
  return c.options.fuse && c.choices.batches;
}

// What a pass does, where that is more than a call of its function.

void split_products(C& c) {
  const ir::Graph simple = passes::normalize()(c.graph);
  std::optional<ir::Graph> split = split_into_chunks(simple, *c.split);
  ensure(split.has_value(), "split-products: %{} cannot be split", c.split->product);
  c.options.chunks = bounds_of(simple, *c.split);
  c.graph = std::move(*split);
}

void fold_parameters(C& c) {
  c.folded = compiler::fold_parameters(c.graph, c.options.steady, c.target);
  if (!c.folded)
    return;
  c.graph = c.folded->main;
  c.options.steady.resize(c.graph.inputs().size(), true);
}

void simplify(C& c) {
  c.graph = passes::normalize()(c.graph);
  c.ops_before_rules = c.graph.size();
}

void roll_loops(C& c) {
  c.graph = passes::normalize()(roll_recurrences(resolve_slices(c.graph)));
  c.ops_before_rules = c.graph.size();
}

void saturate_graph(C& c) {
  c.saturated = std::make_shared<saturate::Saturated>(c.graph, c.options.chosen_rules());
}

void extract(C& c) {
  c.extracted = c.saturated->extract(*c.options.effort >= Effort::Search ? kCandidates : 1);
}

void see_views(C& c) {
  c.candidate =
      std::make_shared<const CandidateGraph>(std::move(c.graph), c.ops_before_normal_form);
  c.graph = {};
}

void assign_layouts(C& c) {
  auto layouts = std::make_shared<const LayoutAssignment>(
      with_layouts(c.candidate->facts(), c.choices.layout_changes));
  c.choices = choices_in_layouts(c.choices, *layouts);
  c.candidate = std::make_shared<const CandidateGraph>(layouts->graph, c.candidate->ops());
  if (c.options.memory_limit) // values that are kept between runs are part of what it is for
    c.options.memory_limit = std::max<std::int64_t>(
        0, *c.options.memory_limit - static_cast<std::int64_t>(layouts->kept_bytes));
  c.layouts = std::move(layouts);
}

void mark_chunks(C& c) {
  const ir::Graph& graph = c.candidate->graph();
  c.choices.chunks = chunks_of(graph, c.options.chunks);
  c.choices.batches = false; // they would hold several chunks at a time
  // The sums over all chunks so far are stored, so that no chunk stays until the last one.
  for (ir::NodeId id = 0; id < graph.size(); ++id)
    if (c.choices.chunks[id] == kSoFar && info_of(graph[id].op).cls == OpClass::Binary)
      c.choices.stored.insert(id);
}

void build_all_regions(C& c) {
  c.parts.regions = build_regions(c.candidate->facts(), c.parts.partition, c.target);
}

void canonicalize_regions(C& c) {
  for (BuiltRegion& built : c.parts.regions)
    canonicalize(built.region, c.target);
}

std::variant<BuiltPlan, OverLimit> planned(C& c,
                                           const std::vector<std::pair<int, int>>& apart = {}) {
  std::vector<PlannedKernel> kernels;
  for (std::size_t i = 0; i < c.parts.regions.size(); ++i)
    kernels.push_back({c.parts.regions[i], c.proposed.entry_of[i]});
  return plan_memory(c.candidate->graph(), kernels, c.proposed.entries, c.options.outputs,
                     c.options.memory_limit, c.target, c.proposed.refusals, apart);
}

void plan_launches(C& c) {
  auto plan = planned(c);
  if (auto* built = std::get_if<BuiltPlan>(&plan)) {
    c.planned = std::move(*built);
    return;
  }
  const auto kept = c.layouts ? static_cast<std::int64_t>(c.layouts->kept_bytes) : 0;
  const OverLimit over = std::get<OverLimit>(plan);
  c.over_limit = OverLimit{over.least + kept, over.plain + kept};
}

/// Where the memory that steps share is all that keeps them from being one launch, they get more.
void find_chains(C& c) {
  const bool strict = c.options.strict.value_or(strict_by_environment());
  FoundChains found = chain_launches(c.planned->plan, c.target, strict);
  if (!found.mixed.empty() && !c.options.memory_limit) {
    BuiltPlan roomy = std::get<BuiltPlan>(planned(c, found.mixed));
    FoundChains more = chain_launches(roomy.plan, c.target, strict);
    if (more.saved_seconds > found.saved_seconds) {
      c.planned = std::move(roomy);
      found = std::move(more);
    }
  }
  c.chains = std::move(found.chains);
  // The blocks of a chain wait for each other by the slots that they share: what one of its steps
  // writes has memory of its own.
  kernel::Plan& plan = c.planned->plan;
  for (const Chain& chain : c.chains)
    for (int s = chain.first; s < chain.end(); ++s)
      for (const int slot : plan.steps[static_cast<std::size_t>(s)].slots)
        if (kernel::Slot& written = plan.slots[static_cast<std::size_t>(slot)];
            written.kind == kernel::SlotKind::Output)
          written.input = -1;
}

// Verifiers and printers.

void verify_graph(const C& c) {
  ir::verify(c.graph);
}
void verify_extracted(const C& c) {
  for (const ir::Graph& graph : c.extracted)
    ir::verify(graph);
}
void verify_candidate(const C& c) {
  ir::verify(c.candidate->graph());
}
void verify_partition(const C& c) {
  verify(c.candidate->facts(), c.parts.partition);
}
void verify_regions(const C& c) {
  verify(c.parts.regions, c.candidate->graph());
}
void verify_schedules(const C& c) {
  verify(c.proposed, c.parts.regions);
}
void verify_plan(const C& c) {
  if (c.planned)
    kernel::verify(c.planned->plan);
}
void verify_code(const C& c) {
  const kernel::Plan& plan = c.planned->plan;
  ensure(c.code.artifacts.size() == plan.kernels.size() && c.code.chains.size() == c.chains.size(),
         "generate-code: {} kernels have machine code, of {}", c.code.artifacts.size(),
         plan.kernels.size());
  const std::vector<bool> alone = launched_alone(plan, c.chains);
  for (std::size_t i = 0; i < c.code.artifacts.size(); ++i)
    ensure((c.code.artifacts[i] == nullptr) ==
               (c.code.refused.contains(i) || (!alone[i] && !c.chains.empty())),
           "generate-code: kernel {} has no machine code, or it was refused", i);
  for (const auto& chain : c.code.chains)
    ensure(chain || c.code.refused_chain, "generate-code: a chain has no machine code");
}

bool may_chain(const C& c) {
  return c.options.chains && c.target.is_gpu() && c.options.fuse && !c.chain_refused;
}

std::string print_graph(const C& c) {
  return ir::print(c.graph);
}
std::string print_folded(const C& c) {
  return c.folded ? fmt::format("{}made once of parameters:\n{}", ir::print(c.graph),
                                ir::print(c.folded->fill))
                  : ir::print(c.graph);
}
std::string print_rules(const C& c) {
  return c.saturated ? rules_text(c.saturated->report(), c.ops_before_rules, c.ops_before_rules)
                     : std::string();
}
std::string print_extracted(const C& c) {
  std::string text;
  for (std::size_t i = 0; i < c.extracted.size(); ++i)
    text += fmt::format("graph {} of {}\n{}", i + 1, c.extracted.size(), ir::print(c.extracted[i]));
  return text;
}
std::string print_views(const C& c) {
  return c.candidate ? print(c.candidate->facts()) : std::string();
}
std::string print_candidate(const C& c) {
  return ir::print(c.candidate->graph());
}
std::string print_chunks(const C& c) {
  std::string text;
  for (std::size_t id = 0; id < c.choices.chunks.size(); ++id)
    if (const int chunk = c.choices.chunks[id]; chunk != 0)
      text += chunk == kSoFar ? fmt::format("%{} combines chunks\n", id)
                              : fmt::format("%{} is of chunk {}\n", id, chunk);
  return text;
}
std::string print_partition(const C& c) {
  return print(c.parts.partition, c.candidate->graph());
}
std::string print_regions(const C& c) {
  return print(c.parts.regions);
}
std::string print_schedules(const C& c) {
  return print(c.proposed);
}
std::string print_plan(const C& c) {
  return c.planned ? kernel::print(c.planned->plan) : std::string();
}
std::string print_code(const C& c) {
  return c.planned ? print(c.code, c.planned->plan, c.chains) : std::string();
}

constexpr auto kAlways = Verified::Always;
constexpr auto kDevelopers = Verified::Developers;

// clang-format off
constexpr std::array kPasses = {
  Pass{"split-products", Phase::Program, "a product that a memory limit does not hold is made in chunks",
       is_split, split_products, kDevelopers, verify_graph, print_graph},
  Pass{"fold-parameters", Phase::Program, "values made of parameters alone become inputs that are made once",
       may_fold, fold_parameters, kDevelopers, verify_graph, print_folded},

  Pass{"simplify", Phase::Rules, "dead nodes, identities and repeated values leave, for a smaller e-graph",
       searches, simplify, kDevelopers, verify_graph, print_graph},
  Pass{"roll-loops", Phase::Rules, "slices are resolved and recurrences rolled, as below, for a smaller e-graph",
       searches_and_rolls, roll_loops, kDevelopers, verify_graph, print_graph},
  Pass{"saturate", Phase::Rules, "equality saturation by the permitted rules",
       searches, saturate_graph, kDevelopers, verify_graph, print_rules},
  Pass{"extract", Phase::Rules, "the cheapest graphs of the e-graph",
       searches, extract, kDevelopers, verify_extracted, print_extracted},

  Pass{"normalize", Phase::Graph, "dead nodes, identities and repeated values leave",
       nullptr, [](C& c) { c.ops_before_normal_form = c.graph.size(); c.graph = passes::normalize()(c.graph); },
       kDevelopers, verify_graph, print_graph},
  Pass{"split-reductions", Phase::Graph, "sums and maxima over concatenations, some of large products, are taken of each operand",
       nullptr, [](C& c) { c.graph = split_reductions(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"resolve-slices", Phase::Graph, "slices of joined values are taken of the piece that lies there",
       nullptr, [](C& c) { c.graph = resolve_slices(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"own-maxima", Phase::Graph, "sums of exp(x - max(max(x), ..)) become those of exp(x - max(x)), scaled",
       nullptr, [](C& c) { c.graph = with_own_maxima(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"join-unrolled-products", Phase::Graph, "products of one form, in steps of a loop, become one product of all steps",
       joins_products, [](C& c) { c.graph = join_unrolled_products(c.graph, !c.options.memory_limit); }, kDevelopers, verify_graph, print_graph},
  Pass{"roll-recurrences", Phase::Graph, "steps h = a h + b of a loop become one scan, what is made of each step is made of all of them",
       rolls, [](C& c) { c.graph = roll_recurrences(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"rejoin-slices", Phase::Graph, "padded slices of one value that are added up are that value again",
       nullptr, [](C& c) { c.graph = rejoin_slices(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"row-gathers", Phase::Graph, "gathers of a few elements move before what computes all, their gradients become choices",
       nullptr, [](C& c) { c.graph = with_row_gathers(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"sink-reshapes", Phase::Graph, "elementwise values move before reshapes that join axes",
       nullptr, [](C& c) { c.graph = sink_reshapes(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"centered-sums", Phase::Graph, "deviations from a mean leave sums over its axes: they add up to 0",
       nullptr, [](C& c) { c.graph = without_centered_sums(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"attention-delta", Phase::Graph, "rowsum(dP * P) becomes rowsum(dO * O), as in FlashAttention-2",
       nullptr, [](C& c) { c.graph = with_attention_delta(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"placed-products", Phase::Graph, "products that windows place and add become one sum of products",
       nullptr, [](C& c) { c.graph = with_placed_products(c.graph, c.target); }, kDevelopers, verify_graph, print_graph},
  Pass{"split-slices", Phase::Graph, "an axis along which a product is read in slices is split in two",
       nullptr, [](C& c) { c.graph = split_slices(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"join-scatters", Phase::Graph, "scatters that update one value one after the other become one",
       joins_scatters, [](C& c) { c.graph = join_scatters(c.graph, c.target); }, kDevelopers, verify_graph, print_graph},
  Pass{"axis-orders", Phase::Graph, "values lie in memory in the order in which kernels read and write neighbours",
       nullptr, [](C& c) { c.graph = with_axis_orders(c.graph, c.target); }, kDevelopers, verify_graph, print_graph},
  Pass{"gather-tables", Phase::Graph, "what is gathered in slices lies so that slices are together",
       nullptr, [](C& c) { c.graph = with_gather_tables(c.graph); }, kDevelopers, verify_graph, print_graph},
  Pass{"prepare-outputs", Phase::Graph, "each output is a value that one kernel can store",
       nullptr, [](C& c) { c.graph = prepare_outputs(c.graph); }, kAlways, verify_graph, print_graph},
  Pass{"views", Phase::Graph, "chains of movement operations become index maps",
       nullptr, see_views, kDevelopers, verify_candidate, print_views},

  Pass{"assign-layouts", Phase::Regions, "values that a fusion plan stores or reads in another layout get it",
       has_layouts, assign_layouts, kAlways, verify_candidate, print_candidate},
  Pass{"mark-chunks", Phase::Regions, "each value of a split product gets its chunk's number",
       has_chunks, mark_chunks, kDevelopers, verify_candidate, print_chunks},
  Pass{"partition", Phase::Regions, "which values are stored, and which one kernel computes",
       nullptr, [](C& c) { c.parts = {partition_for_target(c.candidate->facts(), c.options.fuse, c.target, c.choices), {}}; },
       kDevelopers, verify_partition, print_partition},
  Pass{"build-regions", Phase::Regions, "each group becomes a region: loops, loads with their maps, scalar bodies",
       nullptr, build_all_regions, kDevelopers, verify_regions, print_regions},
  Pass{"canonicalize", Phase::Regions, "flat memory, as few axes as possible: equal regions hash equally",
       nullptr, canonicalize_regions, kAlways, verify_regions, print_regions},
  Pass{"fuse-column-reductions", Phase::Regions, "sums over rows that another kernel goes through join it",
       fuses_columns, [](C& c) { fuse_column_reductions(c.parts.regions, c.target); }, kDevelopers, verify_regions, print_regions},

  Pass{"update-in-place", Phase::Launches, "kernels may write new values over the old ones",
       nullptr, [](C& c) { declare_overwritten_inputs(c.candidate->graph(), c.parts.regions, c.options.outputs); },
       kDevelopers, verify_regions, print_regions},
  Pass{"batch", Phase::Launches, "small independent kernels share a launch",
       may_batch, [](C& c) { batch_small_kernels(c.candidate->graph(), c.parts.regions, c.options.outputs, c.target); },
       kDevelopers, verify_regions, print_regions},
  Pass{"rebase-operands", Phase::Launches, "operands begin at the first element read: steps of a loop are equal",
       nullptr, [](C& c) { rebase_operands(c.parts.regions); }, kDevelopers, verify_regions, print_regions},

  Pass{"propose-schedules", Phase::Schedules, "each distinct region gets a schedule and a program: greedy, remembered or measured",
       nullptr, [](C& c) { c.proposed = c.proposer->propose(c.candidate->graph(), c.parts.regions, c.search_seconds); },
       kAlways, verify_schedules, print_schedules},

  Pass{"ask-builders", Phase::Schedules, "kernels that builders of the user's claim take the place of slower ones",
       has_builders, [](C& c) { c.claimed = ask_builders(c.candidate->graph(), c.parts.regions, c.options, c.target, *c.device, c.proposed); },
       kAlways, verify_schedules, print_schedules},

  Pass{"plan-memory", Phase::Plan, "order of launches, recomputation under a limit, offsets in one arena",
       nullptr, plan_launches, kAlways, verify_plan, print_plan},
  Pass{"chain-launches", Phase::Plan, "launches that repeat with other memory become one",
       may_chain, find_chains, kAlways, [](const C& c) { verify(c.chains, c.planned->plan); }, [](const C& c) { return print(c.chains); }},
  Pass{"generate-code", Phase::Plan, "programs become machine code",
       nullptr, [](C& c) { c.code = generate_code(c.planned->plan, c.chains, *c.device, *c.cache); },
       kAlways, verify_code, print_code},
};
// clang-format on

#ifdef EGRET_CHECKS
constexpr bool kChecks = true;
#else
constexpr bool kChecks = false;
#endif

void run_pass(Compilation& c, const Pass& pass) {
  using Clock = std::chrono::steady_clock;
  std::string before;
  if (c.options.after_pass)
    before = pass.print(c);
  const auto begin = Clock::now();
  pass.run(c);
  if (!c.over_limit && (kChecks || c.options.verify_passes || pass.verified == Verified::Always))
    pass.verify(c);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (c.times)
    add_time(*c.times, pass.name, seconds);
  if (c.options.after_pass)
    c.options.after_pass(
        {pass.name, c.fusion_plan, std::move(before), pass.print(c), begin, seconds, &c});
}

/// Another program for each kernel of the plan that has no code because it was refused, for
/// Phase::Plan to run again. The plan's kernels are the proposed ones, some of them in
/// low-workspace variants. False where there is none.
bool replace_refused(Compilation& c) {
  Refusals& refusals = c.proposed.refusals;
  for (const auto& [i, why] : c.code.refused) {
    const kernel::KernelEntry& planned = c.planned->plan.kernels[i];
    kernel::KernelEntry& entry = c.proposed.entries[i];
    if (planned.program_hash != entry.program_hash) { // the proposed one is still there
      refusals.drop(planned.region.name, planned.schedule, planned.program_hash, entry.schedule,
                    why);
      continue;
    }
    kernel::Chosen next = refusals.replace(entry.region, entry.schedule, entry.program_hash, why);
    entry.schedule = std::move(next.schedule);
    entry.program_hash = kernel::hash_of(next.program);
    entry.program = std::move(next.program);
  }
  if (c.code.refused_chain && !c.chain_refused) { // the launches stay apart
    c.chain_refused = true;
    c.chains.clear();
    refusals.drop("a chain of launches", {}, 0, {}, c.code.refused_chain);
    return true;
  }
  return !c.code.refused.empty();
}

/// Levenshtein's distance.
std::size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t above = row[j + 1];
      row[j + 1] =
          std::min({above + 1, row[j] + 1, diagonal + static_cast<std::size_t>(a[i] != b[j])});
      diagonal = above;
    }
  }
  return row.back();
}

} // namespace

std::string_view name_of(Phase phase) noexcept {
  constexpr std::array<std::string_view, 7> names = {"program",  "rules",     "graph", "regions",
                                                     "launches", "schedules", "plan"};
  return names[static_cast<std::size_t>(phase)];
}

std::span<const Pass> pipeline() {
  return kPasses;
}

const Pass& find_pass(std::string_view name, std::string_view who) {
  const auto found = std::find_if(kPasses.begin(), kPasses.end(),
                                  [&](const Pass& pass) { return pass.name == name; });
  if (found != kPasses.end())
    return *found;
  // A part of a name is nearer to it than any other word.
  const auto distance = [&](const Pass& pass) {
    const bool is_part = !name.empty() && pass.name.find(name) != std::string_view::npos;
    return is_part ? 0 : edits_between(name, pass.name);
  };
  const auto nearest =
      std::min_element(kPasses.begin(), kPasses.end(),
                       [&](const Pass& x, const Pass& y) { return distance(x) < distance(y); });
  fail(ErrorKind::Value,
       "{}: `{}` is no pass; did you mean `{}`? `egret compile --list-passes` "
       "lists them",
       who, name, nearest->name);
}

std::launch launch_beside(const Options& options) {
  return options.after_pass ? std::launch::deferred : std::launch::async | std::launch::deferred;
}

void run_phase(Compilation& compilation, Phase phase) {
  do {
    for (const Pass& pass : kPasses)
      if (pass.phase == phase && !compilation.over_limit &&
          (!pass.applies || pass.applies(compilation)))
        run_pass(compilation, pass);
  } while (phase == Phase::Plan && !compilation.over_limit && replace_refused(compilation));
}

std::shared_ptr<const CandidateGraph> normal_form(const ir::Graph& graph) {
  const kernel::Target target; // a CPU, for the passes that ask
  Compilation c({}, target);
  c.graph = graph;
  run_phase(c, Phase::Graph);
  return c.candidate;
}

namespace {

Compilation fusion_plan_of(const CandidateGraph& candidate, const Options& options,
                           const kernel::Target& target, const PartitionChoices& choices) {
  Compilation c(options, target);
  c.candidate = {std::shared_ptr<const void>(), &candidate}; // the caller's
  c.choices = choices;
  run_phase(c, Phase::Regions);
  return c;
}

} // namespace

Partitioned partition_for(const CandidateGraph& candidate, const Options& options,
                          const kernel::Target& target, const PartitionChoices& choices) {
  return fusion_plan_of(candidate, options, target, choices).parts;
}

Partitioned with_launches(const CandidateGraph& candidate, const Options& options,
                          const kernel::Target& target, const PartitionChoices& choices) {
  Compilation c = fusion_plan_of(candidate, options, target, choices);
  run_phase(c, Phase::Launches);
  return std::move(c.parts);
}

} // namespace egret::compiler

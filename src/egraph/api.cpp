// The public class: a thin layer over the interpreter and the engine that checks what callers pass.
#include "egraph/api_impl.h"
#include "egraph/dag.h"
#include "egraph/extract.h"
#include "egraph/lower.h"
#include "egraph/print.h"
#include "egraph/serialize.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::egraph {

EGraph::EGraph() : impl_(std::make_unique<Impl>()) {}
EGraph::EGraph(const EGraph& other) : impl_(std::make_unique<Impl>(*other.impl_)) {}
EGraph::EGraph(EGraph&&) noexcept = default;
EGraph& EGraph::operator=(const EGraph& other) {
  if (this != &other)
    impl_ = std::make_unique<Impl>(*other.impl_);
  return *this;
}
EGraph& EGraph::operator=(EGraph&&) noexcept = default;
EGraph::~EGraph() = default;

namespace {
Pools& pools_of(void* pools) {
  return *static_cast<Pools*>(pools);
}

void require_fresh(const Engine& engine, const std::string& name) {
  if (name.empty())
    fail(ErrorKind::Value, "a declaration needs a name");
  if (engine.signature.find_sort(name) || engine.signature.find_function(name))
    fail(ErrorKind::Value, "{} is already declared", name);
}

} // namespace

std::int64_t PrimitiveCall::to_i64(Value v) const {
  return pools_of(pools_).to_i64(v);
}
double PrimitiveCall::to_f64(Value v) const {
  return pools_of(pools_).to_f64(v);
}
std::string PrimitiveCall::to_string(Value v) const {
  return pools_of(pools_).to_string(v);
}
Value PrimitiveCall::from_i64(std::int64_t x) {
  return pools_of(pools_).from_i64(x);
}
Value PrimitiveCall::from_f64(double x) {
  return pools_of(pools_).from_f64(x);
}
Value PrimitiveCall::from_string(std::string_view x) {
  return pools_of(pools_).from_string(x);
}

std::string EGraph::run_program(std::string_view text, std::string name) {
  std::string out;
  impl_->interpreter.print = [&out](const std::string& line) { out += line + "\n"; };
  try {
    impl_->interpreter.run_text(std::move(name), std::string(text));
  } catch (...) {
    impl_->interpreter.print = {};
    throw;
  }
  impl_->interpreter.print = {};
  return out;
}

std::string EGraph::run_file(const std::string& path) {
  std::string out;
  impl_->interpreter.print = [&out](const std::string& line) { out += line + "\n"; };
  try {
    impl_->interpreter.run_file(path);
  } catch (...) {
    impl_->interpreter.print = {};
    throw;
  }
  impl_->interpreter.print = {};
  return out;
}

void EGraph::set_fact_directory(std::string path) {
  impl_->interpreter.fact_directory = std::move(path);
}
void EGraph::set_budget(const Budget& budget) {
  impl_->interpreter.budget = budget;
}
std::uint64_t EGraph::cut_runs() const {
  return impl_->interpreter.cut_runs;
}
void EGraph::set_threads(int threads) {
  if (threads < 1 || threads > kMostThreads)
    fail(ErrorKind::Value, "set_threads: {} is not from 1 to {}", threads, kMostThreads);
  impl_->engine().threads = threads;
}

SortId EGraph::declare_sort(const std::string& name) {
  require_fresh(impl_->engine(), name);
  return impl_->engine().signature.add_sort({name, SortKind::Eq, {}, true, {}, {}});
}

FunctionId EGraph::declare_constructor(const std::string& name, std::vector<SortId> inputs,
                                       SortId output, ConstructorOptions options) {
  Engine& engine = impl_->engine();
  require_fresh(engine, name);
  if (!engine.signature.sort(output).is_eq())
    fail(ErrorKind::Value, "{}: a constructor makes a term of an equality sort, not {}", name,
         engine.signature.sort(output).name);
  Function function;
  function.name = name;
  function.inputs = std::move(inputs);
  function.output = output;
  function.cost = options.cost;
  function.unextractable = options.unextractable;
  return engine.add_function(std::move(function));
}

FunctionId EGraph::declare_relation(const std::string& name, std::vector<SortId> inputs) {
  require_fresh(impl_->engine(), name);
  Function function;
  function.name = name;
  function.kind = FunctionKind::Relation;
  function.inputs = std::move(inputs);
  function.output = impl_->engine().signature.add_row_sort(name);
  return impl_->engine().add_function(std::move(function));
}

FunctionId EGraph::declare_function(const std::string& name, std::vector<SortId> inputs,
                                    SortId output, Merge merge) {
  Engine& engine = impl_->engine();
  require_fresh(engine, name);
  Function function;
  function.name = name;
  function.kind = FunctionKind::Function;
  function.inputs = std::move(inputs);
  function.output = output;
  if (!merge.text.empty()) {
    std::uint32_t file = engine.sources.add(name + " :merge", merge.text);
    Sexps read(engine.sources, file);
    if (read.size() != 1)
      fail(ErrorKind::Parse, "{}: the merge must be one expression", name);
    TypeChecker check(engine.signature, engine.sources, engine.pools);
    check.allow_reads(true);
    std::uint32_t old_value = check.declare("old", output, {}),
                  new_value = check.declare("new", output, {});
    std::uint32_t node = check.expression(read[0], false);
    check.expect(node, output);
    Typed typed = check.finish();
    function.merge =
        Lowering(engine.signature, engine.sources, typed).expression(node, {old_value, new_value});
  } else if (merge.body) {
    Primitive primitive;
    primitive.name = "merge of " + name;
    primitive.params = {output, output};
    primitive.result = output;
    primitive.body = [body = std::move(merge.body)](PrimContext& context, const Value* args,
                                                    std::size_t, Value& out) {
      PrimitiveCall call(&context.pools);
      out = body(call, args[0], args[1]);
      return true;
    };
    ActionProgram program;
    program.inputs = 2;
    program.registers = 3;
    program.result = 2;
    program.args = {0, 1};
    ActionStep step;
    step.op = ActionOp::Primitive;
    step.target = engine.signature.add_primitive(std::move(primitive));
    step.dst = 2;
    step.count = 2;
    program.steps.push_back(step);
    function.merge = std::move(program);
  }
  return engine.add_function(std::move(function));
}

void EGraph::declare_primitive(const std::string& name, std::vector<SortId> params, SortId result,
                               PrimitiveBody body, Purity purity) {
  Engine& engine = impl_->engine();
  if (engine.signature.find_function(name))
    fail(ErrorKind::Value, "{} is already declared as a function", name);
  Primitive primitive;
  primitive.name = name;
  primitive.params = std::move(params);
  primitive.result = result;
  primitive.pure = purity == Purity::Pure;
  // The pools are handed over untyped: they are no part of the interface.
  primitive.body = [body = std::move(body)](PrimContext& context, const Value* args,
                                            std::size_t count, Value& out) {
    PrimitiveCall call(&context.pools);
    std::optional<Value> value = body(call, std::span<const Value>(args, count));
    if (value)
      out = *value;
    return value.has_value();
  };
  engine.signature.add_primitive(std::move(primitive));
}

RulesetId EGraph::declare_ruleset(const std::string& name) {
  Engine& engine = impl_->engine();
  if (engine.find_ruleset(name))
    fail(ErrorKind::Value, "the ruleset {} is already declared", name);
  engine.rulesets.push_back({});
  engine.rulesets.back().name = name;
  return RulesetId{static_cast<std::uint32_t>(engine.rulesets.size() - 1)};
}

SortId EGraph::sort(std::string_view name) const {
  auto found = impl_->engine().signature.find_sort(name);
  if (!found)
    fail(ErrorKind::Value, "unknown sort {}", name);
  return *found;
}
FunctionId EGraph::function(std::string_view name) const {
  auto found = impl_->engine().signature.find_function(name);
  if (!found)
    fail(ErrorKind::Value, "unknown function {}{}", name,
         suggestion(impl_->engine().signature, name));
  return *found;
}
RulesetId EGraph::ruleset(std::string_view name) const {
  auto found = impl_->engine().find_ruleset(name);
  if (!found)
    fail(ErrorKind::Value, "unknown ruleset {}", name);
  return *found;
}
const std::string& EGraph::name(FunctionId function) const {
  return impl_->engine().signature.function(function).name;
}
const std::string& EGraph::name(SortId sort) const {
  return impl_->engine().signature.sort(sort).name;
}
const std::string& EGraph::name(RuleId rule) const {
  return impl_->engine().rules[static_cast<std::size_t>(rule)].name;
}
std::span<const SortId> EGraph::inputs(FunctionId function) const {
  return impl_->engine().signature.function(function).inputs;
}
SortId EGraph::output(FunctionId function) const {
  return impl_->engine().signature.function(function).output;
}

Value EGraph::i64(std::int64_t x) {
  return impl_->engine().pools.from_i64(x);
}
Value EGraph::f64(double x) {
  return impl_->engine().pools.from_f64(x);
}
Value EGraph::string(std::string_view x) {
  return impl_->engine().pools.from_string(x);
}
std::int64_t EGraph::to_i64(Value v) const {
  return impl_->engine().pools.to_i64(v);
}
double EGraph::to_f64(Value v) const {
  return impl_->engine().pools.to_f64(v);
}
const std::string& EGraph::to_string(Value v) const {
  return impl_->engine().pools.to_string(v);
}

namespace {
/// The canonical form of a row's key; throws where the number of arguments is wrong.
std::vector<Value> key_of(Engine& engine, FunctionId id, std::span<const Value> args) {
  const Function& function = engine.signature.function(id);
  if (function.inputs.size() != args.size())
    fail(ErrorKind::Value, "{} takes {} arguments, found {}", function.name, function.inputs.size(),
         args.size());
  std::vector<Value> key(args.begin(), args.end());
  for (std::size_t i = 0; i < key.size(); ++i)
    key[i] = engine.canonical(function.inputs[i], key[i]);
  return key;
}
} // namespace

Value EGraph::add(FunctionId id, std::span<const Value> args) {
  Engine& engine = impl_->engine();
  if (engine.signature.function(id).kind == FunctionKind::Function)
    fail(ErrorKind::Value, "{} is a function: use set", engine.signature.function(id).name);
  std::vector<Value> key = key_of(engine, id, args);
  return Actor(engine).construct(id, key.data());
}

void EGraph::set(FunctionId id, std::span<const Value> args, Value value) {
  Engine& engine = impl_->engine();
  const Function& function = engine.signature.function(id);
  if (function.kind != FunctionKind::Function)
    fail(ErrorKind::Value, "{} is not a function: use add", function.name);
  std::vector<Value> key = key_of(engine, id, args);
  Actor(engine).set(id, key.data(), engine.canonical(function.output, value), {});
}

void EGraph::unite(Value a, Value b) {
  Engine& engine = impl_->engine();
  if (a >= engine.classes.size() || b >= engine.classes.size())
    fail(ErrorKind::Value, "unite: {} and {} are not both classes", a, b);
  engine.classes.join(a, b);
}

void EGraph::rebuild() {
  egraph::rebuild(impl_->engine());
}

std::optional<Value> EGraph::lookup(FunctionId id, std::span<const Value> args) const {
  Engine& engine = impl_->engine();
  std::vector<Value> key = key_of(engine, id, args);
  std::uint32_t row = engine.table(id).find(key.data());
  if (row == Table::kNone)
    return std::nullopt;
  return engine.canonical(engine.signature.function(id).output, engine.table(id).output(row));
}

Value EGraph::canonical(SortId sort, Value value) const {
  return impl_->engine().canonical(sort, value);
}

namespace {
std::uint32_t lower_plan(Schedule& schedule, const Plan& plan, int depth) {
  constexpr int kDeepest = 1000;
  if (depth > kDeepest)
    fail(ErrorKind::Value, "a plan is nested too deep");
  ScheduleNode node;
  node.kind = static_cast<ScheduleNode::Kind>(plan.kind);
  node.ruleset = plan.ruleset;
  node.times = plan.times;
  node.back_off = plan.back_off;
  for (const Plan& part : plan.parts)
    node.children.push_back(lower_plan(schedule, part, depth + 1));
  schedule.nodes.push_back(std::move(node));
  return static_cast<std::uint32_t>(schedule.nodes.size() - 1);
}
} // namespace

RunReport EGraph::run(RulesetId ruleset, std::uint64_t times, const Budget& budget) {
  return run(Plan::run(ruleset, times), budget);
}

RunReport EGraph::run(const Plan& plan, const Budget& budget) {
  Schedule schedule;
  schedule.root = lower_plan(schedule, plan, 0);
  rebuild();
  return run_schedule(impl_->engine(), schedule, budget);
}

void EGraph::keep_journal() {
  if (!impl_->engine().journal)
    impl_->engine().journal.emplace();
}

const Journal& EGraph::journal() const {
  static const Journal none;
  const std::optional<JournalState>& kept = impl_->engine().journal;
  return kept ? kept->journal : none;
}

namespace {

NodeCost cost_or_declared(const Engine& engine, const CostModel& cost) {
  return cost ? NodeCost(cost) : declared_costs(engine);
}

/// Term graphs from choices, all roots in each.
TermGraph build_roots(const Engine& engine, const Extraction& problem, std::span<const Root> roots,
                      const std::vector<std::uint32_t>& chosen) {
  TermGraph graph;
  TermBuilder builder(engine, problem, chosen);
  for (Root root : roots)
    graph.roots.push_back(builder.build(graph, root.sort, root.value));
  return graph;
}

/// The classes that the roots mention; literals in the roots themselves cost nothing more.
std::vector<std::uint32_t> root_classes(const Engine& engine, const Extraction& problem,
                                        std::span<const Root> roots) {
  std::vector<Value> classes;
  for (Root root : roots)
    mentioned_classes(engine, root.sort, root.value, classes);
  std::vector<std::uint32_t> out;
  out.reserve(classes.size());
  for (Value cls : classes)
    out.push_back(problem.dense[cls]);
  return out;
}

} // namespace

std::vector<TermGraph> EGraph::extract_best(std::span<const Root> roots,
                                            const ExtractOptions& options) const {
  const Engine& engine = impl_->engine();
  Extraction problem(engine, cost_or_declared(engine, options.cost));
  std::vector<std::uint32_t> classes = root_classes(engine, problem, roots);
  std::vector<TermGraph> out;
  if (options.kind == CostKind::Tree && options.count <= 1) {
    Choice choice = best_trees(problem);
    out.push_back(build_roots(engine, problem, roots, choice.node));
    for (std::uint32_t cls : classes)
      out.back().cost += choice.cost[cls];
    return out;
  }
  if (options.kind == CostKind::Tree) {
    if (roots.size() != 1)
      fail(ErrorKind::Value, "extract: several results of tree cost are for one root");
    return extract_variants(engine, roots[0].sort, roots[0].value, options.count,
                            {engine, cost_or_declared(engine, options.cost)});
  }
  DagOptions dag;
  dag.exact_steps = options.exact_steps;
  std::vector<DagSolution> solutions;
  if (options.count <= 1)
    solutions.push_back(best_dag(problem, classes, dag));
  else
    solutions = best_dags(problem, classes, options.count, dag);
  for (const DagSolution& solution : solutions) {
    out.push_back(build_roots(engine, problem, roots, solution.node));
    out.back().cost = solution.cost;
  }
  return out;
}

TermGraph EGraph::extract(std::span<const Root> roots, const ExtractOptions& options) const {
  ExtractOptions one = options;
  one.count = 1;
  return std::move(extract_best(roots, one)[0]);
}

std::vector<TermGraph> EGraph::sample(std::span<const Root> roots, std::size_t count,
                                      std::uint64_t seed, double heat,
                                      const CostModel& cost) const {
  const Engine& engine = impl_->engine();
  Extraction problem(engine, cost_or_declared(engine, cost));
  std::vector<TermGraph> out;
  for (const DagSolution& solution :
       sample_dags(problem, root_classes(engine, problem, roots), count, seed, heat)) {
    out.push_back(build_roots(engine, problem, roots, solution.node));
    out.back().cost = solution.cost;
  }
  return out;
}

std::string EGraph::show(const TermGraph& graph, std::size_t root) const {
  if (root >= graph.roots.size())
    fail(ErrorKind::Index, "show: root {} of {}", root, graph.roots.size());
  return show_term(impl_->engine(), graph, graph.roots[root]);
}

std::size_t EGraph::size(FunctionId function) const {
  return impl_->engine().table(function).live();
}
std::size_t EGraph::size() const {
  return impl_->engine().live_rows();
}

void EGraph::for_each_row(FunctionId id, const std::function<void(const Row&)>& visit) const {
  const Table& table = impl_->engine().table(id);
  std::vector<Value> args(table.key_columns());
  for (std::uint32_t row = 0; row < table.rows(); ++row) {
    if (table.state(row) == RowState::Dead)
      continue;
    for (std::size_t c = 0; c < args.size(); ++c)
      args[c] = table.at(row, c);
    visit({args, table.output(row), table.state(row) == RowState::Subsumed});
  }
}

std::size_t EGraph::bytes() const {
  return impl_->engine().bytes();
}
void EGraph::write_json(std::ostream& out) const {
  egraph::write_json(impl_->engine(), {}, out);
}
void EGraph::write_dot(std::ostream& out) const {
  egraph::write_dot(impl_->engine(), {}, out);
}
std::string EGraph::to_json() const {
  return egraph::to_json(impl_->engine());
}
std::string EGraph::to_dot() const {
  return egraph::to_dot(impl_->engine());
}
void EGraph::check() const {
  check_invariants(impl_->engine());
}

} // namespace egret::egraph

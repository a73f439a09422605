// The explicit interface: what is recorded on a graph's tensors runs when told to.
#include "egret/graph.h"

#include "compiler/record/node_history.h"
#include "compiler/values/run_diff.h"
#include "compiler/values/save_run.h"
#include "runtime/host_arrays.h"
#include "runtime/runtime.h"
#include "support/call_sites.h"
#include "support/fail.h"
#include "tensor/engine.h"
#include "tensor/graph_debug.h"
#include "tensor/ops.h"
#include "tensor/sizes.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace egret {
namespace detail {

namespace {

// What the graph's nodes refer to; the state, which refers to nodes, belongs to the Graph.
class GraphScope final : public Scope {
public:
  explicit GraphScope(std::string name) : Scope(Kind::Graph, std::move(name)) {}
  NodePtr capture(const std::shared_ptr<Handle>&, NodePtr node) override { return node; }
  NodePtr value_of(const Node& node) override;
  std::weak_ptr<GraphState> state;
};

bool has_step(const Pass& pass, std::string_view step) {
  const std::string name = " | " + pass.name() + " |";
  return name.find(" | " + std::string(step) + " |") != std::string::npos;
}

constexpr std::string_view kOnDevice = "on ";

/// The device that the passes name last; empty: none.
std::string device_step(const Pass& pass) {
  const std::string name = " | " + pass.name() + " |";
  const std::string step = " | " + std::string(kOnDevice);
  const std::size_t at = name.rfind(step);
  if (at == std::string::npos)
    return {};
  const std::size_t begin = at + step.size();
  return name.substr(begin, name.find(" |", begin) - begin);
}

/// What passes ask of the back end.
compiler::Options options_of(const Pass& pass) {
  return {.fuse = has_step(pass, "fusion"), .memory_limit = pass.memory_limit()};
}

} // namespace

struct GraphState {
  struct Input {
    NodePtr placeholder;
    NodePtr value; // null: none (yet, or any more)
    bool kept = false;
  };
  std::shared_ptr<GraphScope> scope;
  std::vector<Input> inputs;
  std::vector<NodePtr> marked;                     // what survives a run
  std::unordered_map<const Node*, NodePtr> values; // of marked, after a run

  std::optional<Pass> passes;
  std::vector<PassReport> reports;
  bool compiled = false;
  std::uint64_t place = 0;   // of the runtime, when it was compiled
  std::string device;        // that a pass named; empty: the tensors' own
  Placement placement;       // of the tensors that it read last
  ir::Graph recorded, graph; // before and after the passes
  std::vector<NodePtr> leaves;
  std::unordered_set<NodePtr> drawn; // leaves whose random numbers a run has had
  std::shared_ptr<const runtime::Program> program;

  Input* input_of(const Node& node) {
    for (Input& input : inputs)
      if (input.placeholder.get() == &node)
        return &input;
    return nullptr;
  }
  void mark(const NodePtr& node) {
    if (std::find(marked.begin(), marked.end(), node) != marked.end())
      return;
    marked.push_back(node);
    compiled = false;
  }
  void lower();
  void compile(const Pass& pass);
  /// Compiles when that was not done yet, or for another device; gives the device to run on.
  runtime::DeviceNumber ensure_compiled() {
    const auto compile_again = [&] { compile(passes ? *passes : Generic{} | Fusion{}); };
    if (!compiled)
      compile_again();
    find_placement();
    const runtime::DeviceNumber number = device_for(placement);
    const runtime::ThreadDevice device(number);
    if (place != runtime::Runtime::instance().place())
      compile_again();
    return number;
  }
  /// The one that a pass named, or that of the leaves and of the inputs' values; Error(Device)
  /// where these belong to two.
  void find_placement() {
    placement = {};
    if (!device.empty()) {
      placement = fixed_placement(Device(device), "Graph");
      return;
    }
    for (const NodePtr& leaf : leaves)
      placement = joined(placement, leaf->placement(), "Graph");
    for (const Input& input : inputs)
      if (input.value)
        placement = joined(placement, input.value->placement(), "Graph");
  }
  Sizes sizes() const; ///< of symbolic dims, by the inputs' values
  std::vector<runtime::RunInput> bind();
  /// Takes the random numbers of a run, other ones than those of any run before.
  void draw(std::vector<runtime::RunInput>& bound, const Sizes& sizes);
  /// Takes the values of inputs that are not kept away. A run reads shapes in them.
  std::vector<NodePtr> use_up();
  void finish(const std::vector<runtime::StoragePtr>& outputs, const Sizes& sizes);
};

namespace {

NodePtr GraphScope::value_of(const Node& node) {
  const auto owner = state.lock();
  if (!owner)
    return nullptr;
  if (auto found = owner->values.find(&node); found != owner->values.end())
    return found->second;
  GraphState::Input* input = owner->input_of(node);
  return input ? input->value : nullptr;
}

// The state behind a tensor of a graph; Error(State) for any other tensor.
std::shared_ptr<GraphState> state_of(const NodePtr& node, const char* who) {
  if (!node->scope || node->scope->kind != Scope::Kind::Graph)
    fail(ErrorKind::State, "{}: this tensor belongs to no Graph; plain tensors compute when read",
         who);
  auto state = std::static_pointer_cast<GraphScope>(node->scope)->state.lock();
  if (!state)
    fail(ErrorKind::State, "{}: the Graph of this tensor is gone", who);
  return state;
}

} // namespace

namespace {

// (engine_mutex) Plain tensors that somebody holds and that are made of random numbers: they have
// one value, which all runs read, as plain tensors do. All other random numbers are those of a run.
std::vector<NodePtr> held_random(const Walk& w) {
  std::vector<bool> random(w.order.size());
  std::vector<NodePtr> found;
  for (std::size_t i = 0; i < w.order.size(); ++i) {
    Node& node = *w.order[i];
    for (const NodePtr& input : node.inputs)
      if (input->place & kLeafBit ? input->draw != nullptr : random[input->place])
        random[i] = true;
    if (random[i] && !node.scope && node.handles.claims() > 0)
      found.push_back(node.shared_from_this());
  }
  return found;
}

} // namespace

void GraphState::lower() {
  if (marked.empty())
    fail(ErrorKind::State, "Graph: nothing is to be computed; mark what you need with retrieve()");
  std::vector<NodePtr> roots;
  for (const NodePtr& node : marked)
    if (node->kind == Node::Kind::Op)
      roots.push_back(node);
  std::vector<NodePtr> before; // let go after the lock
  std::unique_lock lock(engine_mutex());
  Walk w = settled_walk(lock, roots, WalkOutputs::Roots, scope.get(), "Graph");
  if (const std::vector<NodePtr> fixed = held_random(w); !fixed.empty()) {
    lock.unlock();
    w = {};
    evaluate(fixed, "Graph");
    lock.lock();
    w = settled_walk(lock, roots, WalkOutputs::Roots, scope.get(), "Graph");
  }
  recorded = graph_of(w);
  before = std::exchange(leaves, std::move(w.leaves));
}

/// Tells call_sites of what passes made of a graph: nodes are where those were recorded whose place
/// they took.
static void note_sites_behind(const ir::Graph& before, const ir::Graph& after) {
  if (!call_sites::wanted())
    return;
  const auto known = call_sites::places_of(ir::canonical_hash(before), before.size());
  if (known.empty())
    return;
  compiler::NodeHistory history;
  const compiler::NodeHistory::Form form = history.see(before, nullptr).form;
  std::map<compiler::NodeHistory::Number, call_sites::Id> sites;
  for (ir::NodeId id = 0; id < before.size(); ++id)
    sites.emplace(form.nodes[id], known[id]);
  const compiler::NodeHistory::Seen seen = history.see(after, &form);
  for (const auto& fresh : seen.fresh)
    for (const auto replaced : fresh.replaces)
      if (call_sites::Id& site = sites[fresh.number]; site == 0)
        site = sites[replaced];
  std::vector<call_sites::Id> places;
  for (const auto number : seen.form.nodes)
    places.push_back(sites[number]);
  call_sites::note(ir::canonical_hash(after), std::move(places));
}

void GraphState::compile(const Pass& pass) {
  lower();
  reports.clear();
  graph = pass(recorded, &reports);
  device = device_step(pass);
  note_sites_behind(recorded, graph);
  find_placement();
  const runtime::ThreadDevice device(device_for(placement));
  place = runtime::Runtime::instance().place();
  program = runtime::Runtime::instance().program(graph, options_of(pass));
  passes = pass;
  compiled = true;
}

std::vector<runtime::RunInput> GraphState::bind() {
  std::vector<runtime::RunInput> bound;
  for (const NodePtr& leaf : leaves) {
    const Input* input = input_of(*leaf);
    if (!input) { // a plain tensor
      NodePtr here = leaf;
      if (!device.empty() && leaf->kind == Node::Kind::Data) {
        here = placed(leaf, placement, "Graph");
        evaluate(here, "Graph");
      }
      bound.push_back(run_input(here));
      continue;
    }
    if (!input->value)
      fail(ErrorKind::State,
           "Graph: input `{}` has no value; set() it before every execute(), or keep() it once",
           leaf->form.attrs.name);
    const NodePtr here = device.empty() ? input->value : placed(input->value, placement, "Graph");
    evaluate(here, "Graph");
    runtime::RunInput value = run_input(here);
    if (!value.storage)
      value.storage = storage_of(here);
    bound.push_back(std::move(value));
  }
  return bound;
}

void GraphState::draw(std::vector<runtime::RunInput>& bound, const Sizes& sizes) {
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    const auto& draw = leaves[i]->draw;
    if (!draw || (drawn.insert(leaves[i]).second && draw->taken))
      continue; // the first run has those that were taken when they were recorded
    const std::int64_t count = sizes.of({draw->count})[0].value();
    bound[i].bits = take_numbers(*draw->counter, static_cast<std::uint64_t>(count));
  }
}

Sizes GraphState::sizes() const {
  Sizes found;
  for (const Input& input : inputs)
    if (input.value)
      found.bind(input.placeholder->form.shape, input.value->form.shape, "Graph",
                 input.placeholder->form.attrs.name);
  for (const Input& input : inputs)
    if (input.value)
      found.check(input.placeholder->form.shape, input.value->form.shape, "Graph",
                  input.placeholder->form.attrs.name);
  return found;
}

std::vector<NodePtr> GraphState::use_up() {
  std::vector<NodePtr> used;
  for (Input& input : inputs)
    if (!input.kept)
      used.push_back(std::exchange(input.value, nullptr));
  return used;
}

void GraphState::finish(const std::vector<runtime::StoragePtr>& outputs, const Sizes& sizes) {
  values.clear();
  std::size_t next = 0;
  for (const NodePtr& node : marked)
    if (node->kind == Node::Kind::Op) {
      NodePtr& value = values[node.get()];
      value = data_node(node->form.dtype, sizes.of(node->form.shape), outputs[next++]);
      if (placement.is_bound())
        value->place_at(placement);
    }
}

} // namespace detail

using namespace detail;

Generic::Generic() : Pass(passes::normalize()) {}

Fusion::Fusion()
    : Pass("fusion", [](const ir::Graph& graph, Notes& notes) {
        notes.push_back("neighbouring operations share kernels; explain() lists them");
        return graph;
      }) {}

OnDevice::OnDevice(const std::string& name)
    : Pass(std::string(detail::kOnDevice) + Device(name).name(),
           [](const ir::Graph& graph, Notes& notes) {
             notes.push_back("inputs that are elsewhere are copied to it; results are there");
             return graph;
           }) {}

MemoryLimit::MemoryLimit(std::int64_t bytes) : Pass(bytes) {}

Graph::Graph() : state_(std::make_shared<GraphState>()) {
  state_->scope = std::make_shared<GraphScope>("a Graph");
  state_->scope->state = state_;
}
Graph::~Graph() = default;
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;

Tensor Graph::tensor(const Shape& shape, DType dtype, std::string name) {
  for (const Expr& dim : shape)
    if (dim.lower() < 0)
      fail(ErrorKind::Shape, "Graph::tensor: {} has a negative dim", to_string(shape));
  if (name.empty())
    name = fmt::format("input{}", state_->inputs.size());
  NodePtr node = placeholder_node(state_->scope, dtype, shape, std::move(name));
  state_->inputs.push_back({node, nullptr, false});
  return Access::wrap(std::move(node));
}

void Graph::compile_marked(const Pass& pass, std::initializer_list<Tensor*> outputs) {
  for (Tensor* output : outputs)
    output->retrieve();
  state_->compile(pass);
}

void Graph::execute() {
  const runtime::ThreadDevice device(state_->ensure_compiled());
  auto bound = state_->bind();
  const Sizes sizes = state_->sizes();
  state_->draw(bound, sizes);
  state_->values.clear(); // results of the run before need not wait for the new ones
  const std::vector<NodePtr> used = state_->use_up();
  state_->finish(state_->program->run(bound), sizes);
}

DebugReport Graph::execute_debug(const DebugOptions& options) {
  const runtime::ThreadDevice use(state_->ensure_compiled());
  auto bound = state_->bind();
  const Sizes sizes = state_->sizes();
  state_->draw(bound, sizes);
  DebugRun run;
  if (options.fused)
    run = run_kernel_by_kernel(*state_->program, bound);
  else
    run = run_op_by_op(ir::with_dims(state_->graph,
                                     [&](const Expr& symbol) {
                                       return std::optional<Expr>(sizes.of({symbol})[0]);
                                     }),
                       bound);
  const std::vector<NodePtr> used = state_->use_up();
  state_->finish(run.outputs, sizes);
  return std::move(run.report);
}

std::size_t Graph::save_values(const std::string& folder, std::int64_t most_bytes) {
  compiler::make_run_folder(folder);
  const runtime::ThreadDevice use(state_->ensure_compiled());
  auto bound = state_->bind();
  const Sizes sizes = state_->sizes();
  state_->draw(bound, sizes);
  compiler::Options options = options_of(*state_->passes);
  auto& runtime = runtime::Runtime::instance();
  const auto inputs = runtime::host_arrays(state_->graph, bound);
  std::vector<backend::reference::HostArray> outputs;
  compiler::SavedCounts counts;
  if (runtime.engine() == runtime::Engine::Reference) {
    counts = compiler::save_reference_run(state_->graph, {}, inputs, folder,
                                          {.most_bytes = most_bytes}, &outputs);
  } else {
    runtime.complete(options);
    compiler::KernelCache kernels;
    backend::Device& device = runtime.device();
    counts = compiler::save_run(
        compiler::compile_traced(state_->graph, {}, options, device, kernels), state_->graph,
        inputs, &device, folder, {.most_bytes = most_bytes}, &outputs);
  }
  std::vector<runtime::StoragePtr> stored;
  for (const auto& output : outputs) {
    stored.push_back(runtime.allocate(output.bytes.size()));
    runtime.copy_in(stored.back(), output.bytes.data(), output.bytes.size());
  }
  const std::vector<NodePtr> used = state_->use_up();
  state_->finish(stored, sizes);
  return counts.values;
}

ValueDifference diff_values(const std::string& first, const std::string& second, double tolerance) {
  const compiler::RunDiff diff = compiler::diff_runs(
      compiler::read_saved_run(first), compiler::read_saved_run(second), {.scale = tolerance});
  return {diff.compared, diff.differing, diff.text_of_node, compiler::name_of(diff.culprit),
          diff.names,    diff.text()};
}

std::string Graph::text() const {
  if (state_->compiled)
    return ir::print(state_->graph);
  state_->lower();
  return ir::print(state_->recorded);
}

std::string Graph::report() const {
  std::string text;
  for (const PassReport& report : state_->reports)
    text += report.text() + "\n";
  return text;
}

std::string Graph::explain() const {
  if (!state_->compiled)
    return "not compiled yet\n";
  return state_->program->report().text();
}

std::string Graph::schedules() const {
  return state_->compiled ? state_->program->schedules() : "";
}
std::string Graph::loops() const {
  return state_->compiled ? state_->program->loops() : "";
}
std::string Graph::loop_program() const {
  return state_->compiled ? state_->program->loop_terms() : "";
}

// --- the tensors' side

Tensor& Tensor::set(const Tensor& value) {
  const NodePtr node = Access::raw(*this, "set");
  const auto state = state_of(node, "set");
  GraphState::Input* input = state->input_of(*node);
  if (!input)
    fail(ErrorKind::State, "set: this tensor is computed; only inputs of a Graph can be set");
  const NodePtr given = Access::raw(value.to(dtype()), "set");
  if (given->scope)
    fail(ErrorKind::State, "set: the value belongs to {}; give a tensor with a value",
         given->scope->name);
  Sizes sizes; // those of several inputs are compared when all have values
  if (given->form.shape.size() == shape().size())
    sizes.bind(shape(), given->form.shape, "set", "the value");
  const auto fits = [](const Expr& dim, const Expr& size) {
    return !dim.is_constant() || dim == size;
  };
  if (!std::equal(shape().begin(), shape().end(), given->form.shape.begin(),
                  given->form.shape.end(), fits))
    fail(ErrorKind::Shape, "set: the value is {} and the input {}; they must be equal",
         to_string(given->form.shape), to_string(shape()));
  input->value = given;
  return *this;
}

Tensor& Tensor::set(std::initializer_list<float> values) {
  std::int64_t count = 1;
  for (std::int64_t size : sizes())
    count *= size;
  if (static_cast<std::size_t>(count) != values.size())
    fail(ErrorKind::Shape, "set: {} values do not fill {}, which has {} elements", values.size(),
         to_string(shape()), count);
  return set(egret::tensor(std::vector<float>(values), shape()).to(dtype()));
}

Tensor& Tensor::retrieve() {
  const NodePtr node = Access::raw(*this, "retrieve");
  const auto state = state_of(node, "retrieve");
  if (GraphState::Input* input = state->input_of(*node))
    input->kept = true;
  else
    state->mark(node);
  return *this;
}

Tensor& Tensor::keep() {
  return retrieve();
}

} // namespace egret

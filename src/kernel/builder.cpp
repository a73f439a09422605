#include "kernel/builder.h"

#include "kernel/program_fields.h"
#include "support/fail.h"

#include <algorithm>
#include <set>
#include <utility>

namespace egret::kernel {

namespace {

/// Calls a function with every expression of what it goes over.
class Expressions : public FieldVisitor<Expressions> {
public:
  explicit Expressions(const std::function<void(const Expr&)>& f) : f_(f) {}
  void visit(const Expr& e) { f_(e); }

private:
  const std::function<void(const Expr&)>& f_;
};

template <class T>
void each_expr(const T& x, const std::function<void(const Expr&)>& f) {
  Expressions visitor(f);
  visitor(const_cast<T&>(x)); // nothing is changed
}

/// The values that an instruction is made of.
class Arguments : public FieldVisitor<Arguments> {
public:
  explicit Arguments(const std::function<void(ValueId)>& f) : f_(f) {}
  void visit(const Expr&) {}
  void id(IdKind kind, int& number) {
    if (kind == IdKind::Value)
      f_(number);
  }

private:
  const std::function<void(ValueId)>& f_;
};

/// What an instruction reads from memory; null when that is nothing.
const Address* read_by(const Inst& i) {
  if (const auto* load = get_if<inst::Load>(i))
    return &load->from;
  const auto* use = get_if<Intrinsic>(i);
  if (use == nullptr)
    return nullptr;
  const auto& operands = info_of(use->id).memory;
  for (std::size_t m = 0; m < use->memory.size(); ++m)
    if (operands[m].effect == MemoryOperand::Effect::Read)
      return &use->memory[m];
  return nullptr;
}

} // namespace

bool depends_on_lane(const Expr& e) {
  auto variables = variables_of(e);
  return std::any_of(variables.begin(), variables.end(),
                     [](const Expr& v) { return lanes_of(v).has_value(); });
}

bool depends_on_lane(const Guard& g) {
  return depends_on_lane(g.value) || depends_on_lane(g.lo) || depends_on_lane(g.hi);
}

ProgramBuilder::ProgramBuilder(std::string name) {
  program_.name = std::move(name);
  scopes_.emplace_back();
}

int ProgramBuilder::add_buffer(Buffer buffer) {
  program_.buffers.push_back(std::move(buffer));
  epoch_.push_back(0);
  return int(program_.buffers.size()) - 1;
}

int ProgramBuilder::argument(const std::string& name, DType dtype, const Expr& elements,
                             std::int64_t alignment, bool written) {
  int number = 0;
  for (const Buffer& b : program_.buffers)
    number += b.space == Space::Argument;
  return add_buffer({name, dtype, Space::Argument, number, elements, false, written, alignment});
}

int ProgramBuilder::workspace(const std::string& name, DType dtype, const Expr& elements) {
  return add_buffer({name, dtype, Space::Workspace, -1, elements, false, true, 64});
}

int ProgramBuilder::worker_memory(const std::string& name, DType dtype, const Expr& elements) {
  return add_buffer({name, dtype, Space::Worker, -1, elements, false, true, 64});
}

int ProgramBuilder::shared(const std::string& name, DType dtype, std::int64_t elements,
                           std::int64_t alignment) {
  return add_buffer({name, dtype, Space::Shared, -1, Expr(elements), false, true, alignment});
}

int ProgramBuilder::counter(const std::string& name, std::int64_t elements) {
  return add_buffer({name, DType::U32, Space::Counter, -1, Expr(elements), false, true, 16});
}

int ProgramBuilder::add_scalar(DType dtype) {
  program_.scalars.push_back(dtype);
  return int(program_.scalars.size()) - 1;
}

int ProgramBuilder::depth_of(const Expr& e) const {
  int depth = 0;
  for (const Expr& v : variables_of(e)) {
    if (auto id = value_of(v)) {
      ensure(visible(*id), "kernel builder: index value {} is out of scope", *id);
      depth = std::max(depth, value_depth_[*id]);
    } else if (v.is_axis()) {
      for (int d = int(scopes_.size()) - 1; d > depth; --d)
        if (scopes_[d].variable == v)
          depth = d;
    }
  }
  return depth;
}

int ProgramBuilder::depth_of(const Inst& inst) const {
  int here = int(scopes_.size()) - 1;
  if (get_if<inst::Read>(inst))
    return here;
  int depth = 0;
  const std::function<void(ValueId)> argument = [&](ValueId a) {
    ensure(visible(a), "kernel builder: value {} is out of scope", a);
    depth = std::max(depth, value_depth_[a]);
  };
  Arguments arguments(argument);
  arguments(const_cast<Inst&>(inst)); // nothing is changed
  each_expr(inst, [&](const Expr& e) { depth = std::max(depth, depth_of(e)); });
  if (const Address* from = read_by(inst)) {
    if (program_.buffers[from->buffer].written)
      return here;
    int out = here;
    while (out > depth && scopes_[out].loads_may_leave)
      --out;
    depth = out;
  }
  return depth;
}

ValueId ProgramBuilder::let(Inst inst) {
  int depth = depth_of(inst);
  std::uint64_t hash = hash_of(inst);
  const Address* from = read_by(inst);
  bool memory = from && program_.buffers[from->buffer].written;
  if (!get_if<inst::Read>(inst)) {
    for (int d = int(scopes_.size()) - 1; d >= 0; --d) {
      auto [begin, end] = scopes_[d].known.equal_range(hash);
      for (auto it = begin; it != end; ++it)
        if (made_by_[it->second] == inst &&
            (!memory || load_epoch_[it->second] == epoch_[from->buffer]))
          return it->second;
      // What a later iteration stores must not be missed, so loads of writable memory are not
      // shared across loops.
      if (memory && scopes_[d].is_loop)
        break;
    }
  }
  ValueId id = ValueId(program_.values.size());
  program_.values.push_back(inst.type);
  value_depth_.push_back(depth);
  load_epoch_.push_back(from ? epoch_[from->buffer] : 0);
  if (from)
    program_.buffers[from->buffer].read = true;
  Scope& scope = scopes_[depth];
  scope.made.push_back(id);
  scope.known.emplace(hash, id);
  scope.block.push_back(Let{id, inst});
  made_by_.push_back(std::move(inst));
  return id;
}

ValueId ProgramBuilder::constant(const Scalar& value, int lanes) {
  return let({{value.dtype, lanes}, inst::Constant{value}});
}

ValueId ProgramBuilder::scalar(int number) {
  return let({{program_.scalars.at(number), 1}, inst::Argument{number}});
}

ValueId ProgramBuilder::index(const Expr& e, DType dtype, int lanes) {
  return let({{dtype, lanes}, inst::Index{e}});
}

ValueId ProgramBuilder::apply(Op op, DType result, std::vector<ValueId> args) {
  int lanes = 1;
  for (ValueId a : args)
    lanes = std::max(lanes, type_of(a).lanes);
  for (ValueId& a : args)
    a = splat(a, lanes);
  return let({{result, lanes}, inst::Apply{op, std::move(args)}});
}

ValueId ProgramBuilder::exp_beside_one(ValueId v) {
  return quick(Op::Exp, v);
}

ValueId ProgramBuilder::fma(ValueId a, ValueId b, ValueId c) {
  int lanes = std::max({type_of(a).lanes, type_of(b).lanes, type_of(c).lanes});
  return let(
      {{type_of(c).dtype, lanes}, inst::Fma{{splat(a, lanes), splat(b, lanes), splat(c, lanes)}}});
}

ValueId ProgramBuilder::words(ValueId v) {
  return let({{DType::U32, type_of(v).lanes / 2}, inst::Apply{Op::Bitcast, {v}}});
}

ValueId ProgramBuilder::quick(Op op, ValueId x) {
  return let({type_of(x), inst::Apply{op, {x}, true}});
}

ValueId ProgramBuilder::quick_bf16(ValueId x) {
  return let({{DType::BF16, type_of(x).lanes}, inst::Apply{Op::Cast, {x}, true}});
}

ValueId ProgramBuilder::cast(ValueId v, DType dtype) {
  return type_of(v).dtype == dtype ? v : apply(Op::Cast, dtype, {v});
}

ValueId ProgramBuilder::load(int buffer, const Expr& offset, int lanes, std::vector<Guard> mask,
                             CachePolicy policy) {
  return let({{program_.buffers.at(buffer).dtype, lanes},
              inst::Load{{buffer, offset}, unproved(std::move(mask)), policy}});
}

ValueId ProgramBuilder::test(std::vector<Guard> mask, int lanes) {
  return let({{DType::Bool, lanes}, inst::Test{unproved(std::move(mask))}});
}

ValueId ProgramBuilder::splat(ValueId v, int lanes) {
  Type t = type_of(v);
  if (t.lanes == lanes)
    return v;
  ensure(t.lanes == 1, "kernel builder: {} lanes where {} are needed", t.lanes, lanes);
  if (const auto* made = get_if<inst::Constant>(made_by_[v]))
    return constant(Scalar(made->value), lanes);
  return let({{t.dtype, lanes}, inst::Splat{v}});
}

ValueId ProgramBuilder::extract(ValueId v, int lane) {
  if (type_of(v).lanes == 1)
    return v;
  return let({{type_of(v).dtype, 1}, inst::Extract{v, lane}});
}

ValueId ProgramBuilder::reduce_lanes(Monoid monoid, ValueId v) {
  if (type_of(v).lanes == 1)
    return v;
  return let({{type_of(v).dtype, 1}, inst::ReduceLanes{v, monoid}});
}

ValueId ProgramBuilder::reduce_threads(Monoid monoid, ValueId v, int threads) {
  if (threads == 1)
    return v;
  return let({type_of(v), Intrinsic{.id = IntrinsicId::ReduceThreads,
                                    .values = {v},
                                    .numbers = {std::int64_t(monoid), threads}}});
}

ValueId ProgramBuilder::scan_threads(Monoid monoid, ValueId v, int threads) {
  return let({type_of(v), Intrinsic{.id = IntrinsicId::ScanThreads,
                                    .values = {v},
                                    .numbers = {std::int64_t(monoid), threads}}});
}

ValueId ProgramBuilder::shuffle_xor(ValueId v, ValueId mask) {
  return let({type_of(v), Intrinsic{.id = IntrinsicId::ShuffleXor, .values = {v, mask}}});
}

ValueId ProgramBuilder::shuffle(ValueId a, ValueId b, std::vector<int> lanes_from) {
  const int lanes = int(lanes_from.size());
  return let({{type_of(a).dtype, lanes}, inst::Shuffle{{a, b}, std::move(lanes_from)}});
}

VarId ProgramBuilder::variable(Type type) {
  program_.variables.push_back(type);
  return VarId(program_.variables.size()) - 1;
}

void ProgramBuilder::set(VarId variable, ValueId value) {
  value = splat(value, program_.variables.at(variable).lanes);
  ensure(visible(value), "kernel builder: value {} is out of scope", value);
  append(Assign{variable, value});
}

ValueId ProgramBuilder::read(VarId variable) {
  return let({program_.variables.at(variable), inst::Read{variable}});
}

void ProgramBuilder::store(int buffer, const Expr& offset, ValueId value, std::vector<Guard> mask,
                           CachePolicy policy) {
  ensure(visible(value), "kernel builder: value {} is out of scope", value);
  ++epoch_.at(buffer);
  append(Store{{buffer, offset}, value, unproved(std::move(mask)), policy});
}

ValueId ProgramBuilder::load_matrix(int buffer, const Expr& row, int matrices, bool transposed) {
  return let({{DType::U32, matrices},
              Intrinsic{.id = IntrinsicId::LoadMatrix,
                        .memory = {{buffer, row}},
                        .numbers = {matrices, transposed}}});
}

ValueId ProgramBuilder::matrix_multiply(DType element, ValueId a, ValueId b, ValueId c) {
  return let({type_of(c), Intrinsic{.id = IntrinsicId::MatrixMultiply,
                                    .values = {a, b, c},
                                    .numbers = {std::int64_t(element)}}});
}

void ProgramBuilder::append(Stmt statement) {
  scopes_.back().block.push_back(std::move(statement));
}

void ProgramBuilder::see_others() {
  for (auto& e : epoch_)
    ++e;
}

/// What an intrinsic does to what is known of memory.
void ProgramBuilder::take_effect(const Intrinsic& use) {
  const IntrinsicInfo& info = info_of(use.id);
  for (std::size_t i = 0; i < use.memory.size(); ++i)
    switch (info.memory.at(i).effect) {
    case MemoryOperand::Effect::None:
      break;
    case MemoryOperand::Effect::Read:
      program_.buffers.at(use.memory[i].buffer).read = true;
      break;
    case MemoryOperand::Effect::Write:
      ++epoch_.at(use.memory[i].buffer);
      break;
    case MemoryOperand::Effect::Update:
      program_.buffers.at(use.memory[i].buffer).read = true;
      ++epoch_.at(use.memory[i].buffer);
      break;
    }
  if (info.acquires)
    see_others();
}

void ProgramBuilder::intrinsic(Intrinsic use) {
  use.mask = unproved(std::move(use.mask));
  take_effect(use);
  append(std::move(use));
}

void ProgramBuilder::acquire(Intrinsic by, const std::function<void()>& body) {
  take_effect(by);
  inside(Acquire{std::move(by), {}}, Scope{}, body);
}

void ProgramBuilder::copy_async(int to, const Expr& place, int from, const Expr& offset, int lanes,
                                std::vector<Guard> mask, bool swizzled) {
  intrinsic({.id = IntrinsicId::CopyAsync,
             .memory = {{to, place}, {from, offset}},
             .numbers = {lanes, swizzled},
             .mask = std::move(mask)});
}

void ProgramBuilder::store_swizzled(int to, const Expr& place, ValueId elements,
                                    std::vector<Guard> mask) {
  intrinsic({.id = IntrinsicId::StoreSwizzled,
             .memory = {{to, place}},
             .values = {elements},
             .mask = std::move(mask)});
}

void ProgramBuilder::subgroup_barrier() {
  intrinsic({.id = IntrinsicId::SubgroupBarrier});
}

ValueId ProgramBuilder::count_in_order(int counters, int marks, const Expr& place,
                                       std::vector<Guard> mask) {
  const VarId before = variable({DType::I32, 1});
  intrinsic({.id = IntrinsicId::CountInOrder,
             .memory = {{counters, place}, {marks, place}},
             .variables = {before},
             .mask = std::move(mask)});
  return read(before);
}

void ProgramBuilder::commit_copies() {
  intrinsic({.id = IntrinsicId::CommitCopies});
}

void ProgramBuilder::wait_copies(int groups) {
  intrinsic({.id = IntrinsicId::WaitCopies, .numbers = {groups}});
}

void ProgramBuilder::tile_zero(int tile) {
  intrinsic({.id = IntrinsicId::TileZero, .numbers = {tile}});
}

void ProgramBuilder::tile_load(int tile, int buffer, const Expr& place, const Expr& stride) {
  intrinsic({.id = IntrinsicId::TileLoad,
             .memory = {{buffer, place}},
             .numbers = {tile},
             .indices = {stride}});
}

void ProgramBuilder::tile_multiply(int sum, int left, int right) {
  intrinsic(
      {.id = IntrinsicId::TileMultiply, .numbers = {sum, left, right, std::int64_t(DType::BF16)}});
}

void ProgramBuilder::tile_store(int tile, int buffer, const Expr& place, const Expr& stride) {
  intrinsic({.id = IntrinsicId::TileStore,
             .memory = {{buffer, place}},
             .numbers = {tile},
             .indices = {stride}});
}

int ProgramBuilder::tensor_map(TensorMap map) {
  program_.buffers.at(map.buffer).read = true;
  program_.tensor_maps.push_back(std::move(map));
  return int(program_.tensor_maps.size()) - 1;
}

void ProgramBuilder::bulk_tensor_copy(int map, std::vector<Expr> at, int to, const Expr& place,
                                      int barriers, const Expr& barrier) {
  intrinsic({.id = IntrinsicId::BulkTensorCopy,
             .memory = {{to, place}, {barriers, barrier}},
             .numbers = {map},
             .indices = std::move(at)});
}

void ProgramBuilder::bulk_copy(int to, const Expr& place, int from, const Expr& offset,
                               std::int64_t elements, int barriers, const Expr& barrier) {
  program_.buffers.at(from).read = true;
  intrinsic({.id = IntrinsicId::BulkCopy,
             .memory = {{to, place}, {from, offset}, {barriers, barrier}},
             .numbers = {elements}});
}

void ProgramBuilder::grid_dependency_wait(bool unless_settled) {
  intrinsic({.id = IntrinsicId::GridDependencyWait, .numbers = {unless_settled ? 1 : 0}});
}

void ProgramBuilder::launch_dependents() {
  intrinsic({.id = IntrinsicId::LaunchDependents});
}

void ProgramBuilder::mbarrier_init(int barriers, const Expr& place, int arrivals) {
  intrinsic(
      {.id = IntrinsicId::MbarrierInit, .memory = {{barriers, place}}, .numbers = {arrivals}});
}

void ProgramBuilder::mbarrier_arrive(int barriers, const Expr& place, std::int64_t bytes) {
  intrinsic({.id = IntrinsicId::MbarrierArrive, .memory = {{barriers, place}}, .numbers = {bytes}});
}

void ProgramBuilder::mbarrier_arrive_copies(int barriers, const Expr& place) {
  intrinsic({.id = IntrinsicId::MbarrierArriveCopies, .memory = {{barriers, place}}});
}

void ProgramBuilder::mbarrier_wait(int barriers, const Expr& place, ValueId parity) {
  intrinsic({.id = IntrinsicId::MbarrierWait, .memory = {{barriers, place}}, .values = {parity}});
}

void ProgramBuilder::copy_fence() {
  intrinsic({.id = IntrinsicId::CopyFence});
}

void ProgramBuilder::matrix_fence(std::vector<VarId> variables) {
  intrinsic({.id = IntrinsicId::MatrixFence, .variables = std::move(variables)});
}

void ProgramBuilder::matrix_multiply_async(const QueuedProduct& p) {
  Intrinsic use{.id = IntrinsicId::MatrixMultiplyAsync,
                .memory = {p.right.at},
                .variables = p.sums,
                .numbers = {std::int64_t(p.element), p.right.transposed, p.right.group,
                            p.left.transposed, p.left.group},
                .mask = p.added};
  if (p.fragment >= 0)
    use.values = {p.fragment};
  else
    use.memory.push_back(p.left.at);
  intrinsic(std::move(use));
}

void ProgramBuilder::matrix_commit() {
  intrinsic({.id = IntrinsicId::MatrixCommit});
}

void ProgramBuilder::matrix_wait(int groups, std::vector<VarId> variables) {
  intrinsic(
      {.id = IntrinsicId::MatrixWait, .variables = std::move(variables), .numbers = {groups}});
}

void ProgramBuilder::reallocate_registers(int registers, bool raise) {
  intrinsic({.id = IntrinsicId::ReallocateRegisters, .numbers = {registers, raise}});
}

void ProgramBuilder::prefetch(int buffer, const Expr& offset) {
  intrinsic({.id = IntrinsicId::Prefetch, .memory = {{buffer, offset}}});
}

void ProgramBuilder::close(Scope& scope) {
  for (ValueId v : scope.made)
    value_depth_[v] = -1;
}

void ProgramBuilder::loop(const Expr& begin, const Expr& end, const Expr& step, const Expr& extent,
                          Bind bind, const std::function<void(const Expr&)>& body) {
  if (proves_less_equal(end, begin))
    return;
  bool runs = proves_less(begin, end);
  if (bind != Bind::Core && bind != Bind::Grid && runs && proves_less_equal(end, begin + step)) {
    body(begin);
    return;
  }
  For s;
  s.number = loops_++;
  s.extent = extent;
  s.begin = begin;
  s.end = end;
  s.step = step;
  s.bind = bind;
  open(std::move(s), runs, body);
}

/// A loop that is known to run, or not, with its body.
void ProgramBuilder::open(For loop, bool runs, const std::function<void(const Expr&)>& body) {
  Scope scope;
  scope.variable = Expr::axis(loop.number, loop.extent);
  scope.loads_may_leave = runs;
  scope.is_loop = true;
  Expr variable = scope.variable;
  inside(std::move(loop), std::move(scope), [&] { body(variable); });
}

void ProgramBuilder::inside(Stmt statement, Scope scope, const std::function<void()>& body) {
  scopes_.push_back(std::move(scope));
  ++stretch_;
  body();
  ++stretch_;
  close(scopes_.back());
  bool taken = false;
  each_block(statement, [&](Block& block) {
    if (!std::exchange(taken, true))
      block = std::move(scopes_.back().block);
  });
  scopes_.pop_back();
  scopes_.back().block.push_back(std::move(statement));
}

For ProgramBuilder::over_grid(const Expr& end) {
  For s;
  s.number = loops_++;
  s.extent = s.end = end;
  s.begin = Expr(0);
  s.step = Expr(1);
  s.bind = Bind::Grid;
  return s;
}

void ProgramBuilder::grid_loop(const Expr& end, const std::function<void(const Expr&)>& body,
                               int counter) {
  if (proves_less_equal(end, Expr(0)))
    return;
  For s = over_grid(end);
  if (counter >= 0)
    s.queue = Address{counter, Expr(0)};
  open(std::move(s), proves_less(Expr(0), end), body);
}

int ProgramBuilder::relay(const std::string& name) {
  return shared(name, DType::U64, Relay::kWords);
}

void ProgramBuilder::prepare_relay(int relay, int followers) {
  for (int i = 0; i < 2; ++i) {
    mbarrier_init(relay, Expr(i), 1);
    mbarrier_init(relay, Expr(2 + i), followers);
  }
}

void ProgramBuilder::relayed_loop(const Expr& end, int counter, int relay, bool leads,
                                  const std::function<void(const Expr&)>& body) {
  For s = over_grid(end);
  s.queue = Address{counter, Expr(0)};
  s.relay = Relay{{relay, Expr(0)}, leads};
  open(std::move(s), proves_less(Expr(0), end), body);
}

void ProgramBuilder::grid_barrier(int counter, const Expr& place) {
  intrinsic({.id = IntrinsicId::GridBarrier, .memory = {{counter, place}}, .numbers = {0}});
}

void ProgramBuilder::last_arriver(int counter, const Expr& place, const Expr& arrivals,
                                  const std::function<void()>& body) {
  acquire({.id = IntrinsicId::LastArriver, .memory = {{counter, place}}, .indices = {arrivals}},
          body);
  see_others();
}

void ProgramBuilder::last_arriver_of_group(int number, int threads, int counter, const Expr& place,
                                           const Expr& arrivals,
                                           const std::function<void()>& body) {
  acquire({.id = IntrinsicId::LastArriverOfGroup,
           .memory = {{counter, place}},
           .numbers = {number, threads},
           .indices = {arrivals}},
          body);
  see_others();
}

void ProgramBuilder::atomic_combine(Monoid monoid, int buffer, const Expr& offset, ValueId value,
                                    std::vector<Guard> mask) {
  intrinsic({.id = IntrinsicId::AtomicCombine,
             .memory = {{buffer, offset}},
             .values = {value},
             .numbers = {std::int64_t(monoid)},
             .mask = std::move(mask)});
}

ValueId ProgramBuilder::atomic_fetch_add(int buffer, const Expr& offset, ValueId value,
                                         std::vector<Guard> mask) {
  const VarId before = variable({DType::I32, 1});
  intrinsic({.id = IntrinsicId::AtomicFetchAdd,
             .memory = {{buffer, offset}},
             .values = {value},
             .variables = {before},
             .mask = std::move(mask)});
  return read(before);
}

void ProgramBuilder::publish_flag(int counter, const Expr& place) {
  intrinsic({.id = IntrinsicId::PublishFlag, .memory = {{counter, place}}});
}

void ProgramBuilder::wait_flags(int counter, const Expr& begin, const Expr& end,
                                const std::function<void()>& body) {
  acquire({.id = IntrinsicId::WaitFlags, .memory = {{counter, begin}}, .indices = {end}}, body);
}

void ProgramBuilder::publish_word(int counter, const Expr& word, ValueId value) {
  intrinsic(
      {.id = IntrinsicId::PublishWord, .memory = {{counter, word * Expr(2)}}, .values = {value}});
}

ValueId ProgramBuilder::await_word(int counter, const Expr& word, std::vector<Guard> mask) {
  const VarId found = variable({DType::U32, 1});
  intrinsic({.id = IntrinsicId::AwaitWord,
             .memory = {{counter, word * Expr(2)}},
             .variables = {found},
             .mask = std::move(mask)});
  return read(found);
}

void ProgramBuilder::clear_flags(int counter, std::int64_t count, int arrivals) {
  intrinsic({.id = IntrinsicId::ClearFlags,
             .memory = {{counter, Expr(0)}, {arrivals, Expr(0)}},
             .numbers = {count}});
}

void ProgramBuilder::when(std::vector<Guard> condition, const std::function<void()>& body) {
  condition = unproved(std::move(condition));
  if (condition.empty()) {
    body();
    return;
  }
  for (const Guard& g : condition)
    if (proves_less_equal(g.hi, g.value) || proves_less(g.value, g.lo))
      return;
  inside(If{std::move(condition), {}, {}}, Scope{}, body);
}

void ProgramBuilder::either(std::vector<Guard> condition, const std::function<void()>& body,
                            const std::function<void()>& otherwise) {
  condition = unproved(std::move(condition));
  ensure(!condition.empty(), "kernel builder: a choice that is none");
  inside(If{std::move(condition), {}, {}}, Scope{}, body);
  Stmt both = std::move(scopes_.back().block.back());
  scopes_.back().block.pop_back();
  Block first = std::move(get_if<If>(both)->body);
  inside(std::move(both), Scope{}, otherwise);
  If& made = *get_if<If>(scopes_.back().block.back());
  made.otherwise = std::move(made.body);
  made.body = std::move(first);
}

void ProgramBuilder::barrier() {
  program_.uses_barrier = true;
  see_others();
  append(Barrier{});
}

KernelProgram ProgramBuilder::finish(const Expr& workers) {
  return finish(Launch{.workers = workers});
}

KernelProgram ProgramBuilder::finish(Launch launch) {
  ensure(scopes_.size() == 1, "kernel builder: finished inside a loop");
  program_.body = std::move(scopes_.back().block);
  program_.launch = std::move(launch);
  std::set<std::string> seen;
  auto collect = [&](const Expr& e) {
    for (const Expr& v : variables_of(e))
      if (v.is_symbol() && !lanes_of(v) && !threads_of(v) && !value_of(v) &&
          seen.insert(v.node().name).second)
        program_.dims.push_back(v);
  };
  each_expr(program_.body, collect);
  for (const Buffer& b : program_.buffers)
    collect(b.elements);
  for (const TensorMap& m : program_.tensor_maps) {
    collect(m.offset);
    for (const auto* list : {&m.extents, &m.strides})
      for (const Expr& e : *list)
        collect(e);
  }
  collect(program_.launch.workers);
  verify(program_);
  return std::move(program_);
}

std::vector<Guard> unproved(std::vector<Guard> mask) {
  std::erase_if(mask, [](const Guard& g) {
    return proves_less_equal(g.lo, g.value) && proves_less(g.value, g.hi);
  });
  std::vector<Guard> once;
  for (Guard& g : mask)
    if (std::find(once.begin(), once.end(), g) == once.end())
      once.push_back(std::move(g));
  return once;
}

} // namespace egret::kernel

#include "kernel/builder.h"

#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <set>

namespace egret::kernel {

namespace {

std::uint64_t hash_of(const Inst& i) {
  std::uint64_t h = std::uint64_t(i.kind);
  auto add = [&](std::uint64_t v) { h = combine(h, v); };
  add(std::uint64_t(i.type.dtype) * 64 + std::uint64_t(i.type.lanes));
  add(i.constant.bits);
  add(std::uint64_t(std::int64_t(i.number)));
  add(i.expr.hash());
  add(std::uint64_t(i.op));
  add(std::uint64_t(std::int64_t(i.buffer)));
  for (const Guard& g : i.mask)
    add(g.value.hash());
  for (ValueId a : i.args)
    add(std::uint64_t(a));
  for (int l : i.lanes_from)
    add(std::uint64_t(l));
  add(std::uint64_t(i.element) * 4 + std::uint64_t(i.transposed) * 2 + std::uint64_t(i.quick));
  return h;
}

Inst across_threads(InstKind kind, Type type, Monoid monoid, ValueId v, int threads) {
  Inst i;
  i.kind = kind;
  i.type = type;
  i.monoid = monoid;
  i.number = threads;
  i.args = {v};
  return i;
}

void each_expr(const Inst& i, const std::function<void(const Expr&)>& f) {
  f(i.expr);
  f(i.source_expr);
  for (const Expr& e : i.at)
    f(e);
  for (const Guard& g : i.mask) {
    f(g.value);
    f(g.lo);
    f(g.hi);
  }
}

void each_expr(const Block& block, const std::function<void(const Expr&)>& f) {
  for (const Stmt& s : block) {
    each_expr(s.inst, f);
    for (const Expr* e : {&s.extent, &s.begin, &s.end, &s.step})
      f(*e);
    each_expr(s.body, f);
    each_expr(s.otherwise, f);
  }
}

} // namespace

bool depends_on_lane(const Expr& e) {
  auto variables = variables_of(e);
  return std::any_of(variables.begin(), variables.end(),
                     [](const Expr& v) { return lanes_of(v).has_value(); });
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
  if (inst.kind == InstKind::ReadVar)
    return here;
  int depth = 0;
  for (ValueId a : inst.args) {
    ensure(visible(a), "kernel builder: value {} is out of scope", a);
    depth = std::max(depth, value_depth_[a]);
  }
  each_expr(inst, [&](const Expr& e) { depth = std::max(depth, depth_of(e)); });
  if (inst.kind == InstKind::Load || inst.kind == InstKind::LoadMatrix) {
    if (program_.buffers[inst.buffer].written)
      return here;
    int out = here;
    while (out > depth && scopes_[out].loads_may_leave)
      --out;
    depth = out;
  }
  return depth;
}

ValueId ProgramBuilder::let(Inst inst) {
  inst.mask = unproved(std::move(inst.mask));
  int depth = depth_of(inst);
  std::uint64_t hash = hash_of(inst);
  bool memory = (inst.kind == InstKind::Load || inst.kind == InstKind::LoadMatrix) &&
                program_.buffers[inst.buffer].written;
  if (inst.kind != InstKind::ReadVar) {
    for (int d = int(scopes_.size()) - 1; d >= 0; --d) {
      auto [begin, end] = scopes_[d].known.equal_range(hash);
      for (auto it = begin; it != end; ++it)
        if (made_by_[it->second] == inst &&
            (!memory || load_epoch_[it->second] == epoch_[inst.buffer]))
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
  load_epoch_.push_back(inst.buffer >= 0 ? epoch_[inst.buffer] : 0);
  if (inst.buffer >= 0)
    program_.buffers[inst.buffer].read = true;
  Scope& scope = scopes_[depth];
  scope.made.push_back(id);
  scope.known.emplace(hash, id);
  Stmt s;
  s.kind = StmtKind::Let;
  s.target = id;
  s.inst = inst;
  scope.block.push_back(std::move(s));
  made_by_.push_back(std::move(inst));
  return id;
}

ValueId ProgramBuilder::constant(const Scalar& value, int lanes) {
  Inst i;
  i.kind = InstKind::Constant;
  i.type = {value.dtype, lanes};
  i.constant = value;
  return let(std::move(i));
}

ValueId ProgramBuilder::scalar(int number) {
  Inst i;
  i.kind = InstKind::Scalar;
  i.type = {program_.scalars.at(number), 1};
  i.number = number;
  return let(std::move(i));
}

ValueId ProgramBuilder::index(const Expr& e, DType dtype, int lanes) {
  Inst i;
  i.kind = InstKind::Index;
  i.type = {dtype, lanes};
  i.expr = e;
  return let(std::move(i));
}

ValueId ProgramBuilder::apply(Op op, DType result, std::vector<ValueId> args) {
  int lanes = 1;
  for (ValueId a : args)
    lanes = std::max(lanes, type_of(a).lanes);
  for (ValueId& a : args)
    a = splat(a, lanes);
  Inst i;
  i.kind = InstKind::Apply;
  i.type = {result, lanes};
  i.op = op;
  i.args = std::move(args);
  return let(std::move(i));
}

ValueId ProgramBuilder::exp_beside_one(ValueId v) {
  Inst i;
  i.kind = InstKind::Apply;
  i.type = type_of(v);
  i.op = Op::Exp;
  i.number = 1;
  i.args = {v};
  return let(std::move(i));
}

ValueId ProgramBuilder::fma(ValueId a, ValueId b, ValueId c) {
  int lanes = std::max({type_of(a).lanes, type_of(b).lanes, type_of(c).lanes});
  Inst i;
  i.kind = InstKind::Fma;
  i.type = {type_of(c).dtype, lanes};
  i.args = {splat(a, lanes), splat(b, lanes), splat(c, lanes)};
  return let(std::move(i));
}

ValueId ProgramBuilder::words(ValueId v) {
  Inst i;
  i.kind = InstKind::Apply;
  i.type = {DType::U32, type_of(v).lanes / 2};
  i.op = Op::Bitcast;
  i.args = {v};
  return let(std::move(i));
}

ValueId ProgramBuilder::quick(Op op, ValueId x) {
  Inst i;
  i.kind = InstKind::Apply;
  i.type = type_of(x);
  i.op = op;
  i.quick = true;
  i.args = {x};
  return let(std::move(i));
}

ValueId ProgramBuilder::quick_bf16(ValueId x) {
  Inst i;
  i.kind = InstKind::Apply;
  i.type = {DType::BF16, type_of(x).lanes};
  i.op = Op::Cast;
  i.quick = true;
  i.args = {x};
  return let(std::move(i));
}

ValueId ProgramBuilder::cast(ValueId v, DType dtype) {
  return type_of(v).dtype == dtype ? v : apply(Op::Cast, dtype, {v});
}

ValueId ProgramBuilder::load(int buffer, const Expr& offset, int lanes, std::vector<Guard> mask,
                             CachePolicy policy) {
  Inst i;
  i.kind = InstKind::Load;
  i.type = {program_.buffers.at(buffer).dtype, lanes};
  i.buffer = buffer;
  i.expr = offset;
  i.mask = std::move(mask);
  i.policy = policy;
  return let(std::move(i));
}

ValueId ProgramBuilder::test(std::vector<Guard> mask, int lanes) {
  Inst i;
  i.kind = InstKind::Test;
  i.type = {DType::Bool, lanes};
  i.mask = std::move(mask);
  return let(std::move(i));
}

ValueId ProgramBuilder::splat(ValueId v, int lanes) {
  Type t = type_of(v);
  if (t.lanes == lanes)
    return v;
  ensure(t.lanes == 1, "kernel builder: {} lanes where {} are needed", t.lanes, lanes);
  if (made_by_[v].kind == InstKind::Constant)
    return constant(made_by_[v].constant, lanes);
  Inst i;
  i.kind = InstKind::Splat;
  i.type = {t.dtype, lanes};
  i.args = {v};
  return let(std::move(i));
}

ValueId ProgramBuilder::extract(ValueId v, int lane) {
  if (type_of(v).lanes == 1)
    return v;
  Inst i;
  i.kind = InstKind::Extract;
  i.type = {type_of(v).dtype, 1};
  i.number = lane;
  i.args = {v};
  return let(std::move(i));
}

ValueId ProgramBuilder::reduce_lanes(Monoid monoid, ValueId v) {
  if (type_of(v).lanes == 1)
    return v;
  Inst i;
  i.kind = InstKind::ReduceLanes;
  i.type = {type_of(v).dtype, 1};
  i.monoid = monoid;
  i.args = {v};
  return let(std::move(i));
}

ValueId ProgramBuilder::reduce_threads(Monoid monoid, ValueId v, int threads) {
  return let(across_threads(InstKind::ReduceThreads, type_of(v), monoid, v, threads));
}

ValueId ProgramBuilder::scan_threads(Monoid monoid, ValueId v, int threads) {
  return let(across_threads(InstKind::ScanThreads, type_of(v), monoid, v, threads));
}

ValueId ProgramBuilder::shuffle(ValueId a, ValueId b, std::vector<int> lanes_from) {
  Inst i;
  i.kind = InstKind::Shuffle;
  i.type = {type_of(a).dtype, int(lanes_from.size())};
  i.args = {a, b};
  i.lanes_from = std::move(lanes_from);
  return let(std::move(i));
}

VarId ProgramBuilder::variable(Type type) {
  program_.variables.push_back(type);
  return VarId(program_.variables.size()) - 1;
}

void ProgramBuilder::set(VarId variable, ValueId value) {
  value = splat(value, program_.variables.at(variable).lanes);
  ensure(visible(value), "kernel builder: value {} is out of scope", value);
  Stmt s;
  s.kind = StmtKind::Set;
  s.target = variable;
  s.args = {value};
  scopes_.back().block.push_back(std::move(s));
}

ValueId ProgramBuilder::read(VarId variable) {
  Inst i;
  i.kind = InstKind::ReadVar;
  i.type = program_.variables.at(variable);
  i.number = variable;
  return let(std::move(i));
}

void ProgramBuilder::store(int buffer, const Expr& offset, ValueId value, std::vector<Guard> mask,
                           CachePolicy policy) {
  ensure(visible(value), "kernel builder: value {} is out of scope", value);
  Stmt s;
  s.kind = StmtKind::Store;
  s.inst.type = type_of(value);
  s.inst.buffer = buffer;
  s.inst.expr = offset;
  s.inst.mask = unproved(std::move(mask));
  s.inst.policy = policy;
  s.args = {value};
  ++epoch_.at(buffer);
  scopes_.back().block.push_back(std::move(s));
}

ValueId ProgramBuilder::load_matrix(int buffer, const Expr& row, int matrices, bool transposed) {
  Inst i;
  i.kind = InstKind::LoadMatrix;
  i.type = {DType::U32, matrices};
  i.number = matrices;
  i.buffer = buffer;
  i.expr = row;
  i.transposed = transposed;
  return let(std::move(i));
}

ValueId ProgramBuilder::mma(DType element, ValueId a, ValueId b, ValueId c) {
  Inst i;
  i.kind = InstKind::Mma;
  i.type = type_of(c);
  i.element = element;
  i.args = {a, b, c};
  return let(std::move(i));
}

void ProgramBuilder::copy_async(int to, const Expr& place, int from, const Expr& offset, int lanes,
                                std::vector<Guard> mask) {
  Stmt s;
  s.kind = StmtKind::CopyAsync;
  s.inst.type = {buffer_dtype(to), lanes};
  s.inst.buffer = to;
  s.inst.expr = place;
  s.inst.source = from;
  s.inst.source_expr = offset;
  s.inst.mask = unproved(std::move(mask));
  ++epoch_.at(to);
  program_.buffers.at(from).read = true;
  scopes_.back().block.push_back(std::move(s));
}

void ProgramBuilder::warp_barrier() {
  for (auto& e : epoch_)
    ++e;
  Stmt s;
  s.kind = StmtKind::WarpBarrier;
  scopes_.back().block.push_back(std::move(s));
}

void ProgramBuilder::commit_copies() {
  Stmt s;
  s.kind = StmtKind::CommitCopies;
  scopes_.back().block.push_back(std::move(s));
}

void ProgramBuilder::wait_copies(int groups) {
  for (auto& e : epoch_)
    ++e;
  Stmt s;
  s.kind = StmtKind::WaitCopies;
  s.number = groups;
  scopes_.back().block.push_back(std::move(s));
}

void ProgramBuilder::tile_zero(int tile) {
  Stmt s;
  s.kind = StmtKind::TileZero;
  s.target = tile;
  effect(std::move(s));
}

void ProgramBuilder::tile_load(int tile, int buffer, const Expr& place, const Expr& stride) {
  program_.buffers.at(buffer).read = true;
  Stmt s;
  s.kind = StmtKind::TileLoad;
  s.target = tile;
  s.inst.buffer = buffer;
  s.inst.expr = place;
  s.inst.source_expr = stride;
  effect(std::move(s));
}

void ProgramBuilder::tile_multiply(int sum, int left, int right) {
  Stmt s;
  s.kind = StmtKind::TileMultiply;
  s.target = sum;
  s.number = left;
  s.inst.number = right;
  s.inst.element = DType::BF16;
  effect(std::move(s));
}

void ProgramBuilder::tile_store(int tile, int buffer, const Expr& place, const Expr& stride) {
  ++epoch_.at(buffer);
  Stmt s;
  s.kind = StmtKind::TileStore;
  s.target = tile;
  s.inst.buffer = buffer;
  s.inst.expr = place;
  s.inst.source_expr = stride;
  effect(std::move(s));
}

int ProgramBuilder::tensor_map(TensorMap map) {
  program_.buffers.at(map.buffer).read = true;
  program_.tensor_maps.push_back(std::move(map));
  return int(program_.tensor_maps.size()) - 1;
}

void ProgramBuilder::tensor_copy(int map, std::vector<Expr> at, int to, const Expr& place,
                                 int signals, const Expr& signal) {
  Stmt s;
  s.kind = StmtKind::TensorCopy;
  s.number = map;
  s.inst.at = std::move(at);
  s.inst.buffer = to;
  s.inst.expr = place;
  s.inst.source = signals;
  s.inst.source_expr = signal;
  scopes_.back().block.push_back(std::move(s));
}

void ProgramBuilder::effect(Stmt statement) {
  scopes_.back().block.push_back(std::move(statement));
}

void ProgramBuilder::prefetch(int buffer, const Expr& offset) {
  Stmt s;
  s.kind = StmtKind::Prefetch;
  s.inst.buffer = buffer;
  s.inst.expr = offset;
  scopes_.back().block.push_back(std::move(s));
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
  Stmt s;
  s.kind = StmtKind::For;
  s.number = loops_++;
  s.extent = extent;
  s.begin = begin;
  s.end = end;
  s.step = step;
  s.bind = bind;
  Scope scope;
  scope.variable = Expr::axis(s.number, extent);
  scope.loads_may_leave = runs;
  scope.is_loop = true;
  Expr variable = scope.variable;
  inside(std::move(s), std::move(scope), [&] { body(variable); });
}

void ProgramBuilder::inside(Stmt statement, Scope scope, const std::function<void()>& body) {
  scopes_.push_back(std::move(scope));
  ++stretch_;
  body();
  ++stretch_;
  close(scopes_.back());
  statement.body = std::move(scopes_.back().block);
  scopes_.pop_back();
  scopes_.back().block.push_back(std::move(statement));
}

void ProgramBuilder::grid_loop(const Expr& end, const std::function<void(const Expr&)>& body,
                               int counter) {
  if (proves_less_equal(end, Expr(0)))
    return;
  Stmt s;
  s.kind = StmtKind::For;
  s.number = loops_++;
  s.extent = s.end = end;
  s.begin = Expr(0);
  s.step = Expr(1);
  s.bind = Bind::Grid;
  if (counter >= 0) {
    s.order = WorkOrder::Drawn;
    s.inst.buffer = counter;
    s.inst.expr = Expr(0);
  }
  Scope scope;
  scope.variable = Expr::axis(s.number, end);
  scope.loads_may_leave = proves_less(Expr(0), end);
  scope.is_loop = true;
  Expr variable = scope.variable;
  inside(std::move(s), std::move(scope), [&] { body(variable); });
}

void ProgramBuilder::grid_barrier(int counter, const Expr& place) {
  for (auto& e : epoch_)
    ++e;
  Stmt s;
  s.kind = StmtKind::GridBarrier;
  s.inst.buffer = counter;
  s.inst.expr = place;
  scopes_.back().block.push_back(std::move(s));
}

void ProgramBuilder::last(int counter, const Expr& place, const Expr& arrivals,
                          const std::function<void()>& body) {
  last_of_threads(0, -1, counter, place, arrivals, body);
}

void ProgramBuilder::last_of_threads(int number, int threads, int counter, const Expr& place,
                                     const Expr& arrivals, const std::function<void()>& body) {
  for (auto& e : epoch_)
    ++e;
  Stmt s;
  s.kind = StmtKind::Last;
  s.number = number;
  s.target = threads;
  s.inst.buffer = counter;
  s.inst.expr = place;
  s.end = arrivals;
  inside(std::move(s), Scope{}, body);
  for (auto& e : epoch_)
    ++e;
}

void ProgramBuilder::post(int counter, const Expr& place) {
  Stmt s;
  s.kind = StmtKind::Post;
  s.inst.buffer = counter;
  s.inst.expr = place;
  effect(std::move(s));
}

void ProgramBuilder::await_posts(int counter, const Expr& begin, const Expr& end,
                                 const std::function<void()>& body) {
  for (auto& e : epoch_)
    ++e;
  Stmt s;
  s.kind = StmtKind::AwaitPosts;
  s.inst.buffer = counter;
  s.inst.expr = begin;
  s.end = end;
  inside(std::move(s), Scope{}, body);
}

void ProgramBuilder::clear_posts(int counter, std::int64_t count, int arrivals) {
  Stmt s;
  s.kind = StmtKind::ClearPosts;
  s.number = int(count);
  s.inst.buffer = counter;
  s.inst.source = arrivals;
  effect(std::move(s));
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
  Stmt s;
  s.kind = StmtKind::If;
  s.inst.mask = std::move(condition);
  inside(std::move(s), Scope{}, body);
}

void ProgramBuilder::either(std::vector<Guard> condition, const std::function<void()>& body,
                            const std::function<void()>& otherwise) {
  condition = unproved(std::move(condition));
  ensure(!condition.empty(), "kernel builder: a choice that is none");
  Stmt s;
  s.kind = StmtKind::If;
  s.inst.mask = std::move(condition);
  inside(std::move(s), Scope{}, body);
  Stmt both = std::move(scopes_.back().block.back());
  scopes_.back().block.pop_back();
  Block first = std::move(both.body);
  inside(std::move(both), Scope{}, otherwise);
  Stmt& made = scopes_.back().block.back();
  made.otherwise = std::move(made.body);
  made.body = std::move(first);
}

void ProgramBuilder::barrier() {
  program_.uses_barrier = true;
  for (auto& e : epoch_)
    ++e;
  Stmt s;
  s.kind = StmtKind::Barrier;
  scopes_.back().block.push_back(std::move(s));
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

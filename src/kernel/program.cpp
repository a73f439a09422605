#include "kernel/program.h"

#include "support/hash.h"

namespace egret::kernel {

namespace {

// Names that no user's symbol can have, since those begin with a letter.
constexpr std::string_view kLanePrefix = "%lane";
constexpr std::string_view kThreadPrefix = "%thread";
constexpr std::string_view kValuePrefix = "%v";

std::optional<int> number_after(std::string_view prefix, const Expr& e) {
  if (!e.is_symbol() || !e.node().name.starts_with(prefix))
    return std::nullopt;
  std::string_view rest = std::string_view(e.node().name).substr(prefix.size());
  int n = 0;
  for (char c : rest)
    n = n * 10 + (c - '0');
  return n;
}

class Hasher {
public:
  void add(std::uint64_t v) { h_ = combine(h_, v); }
  void add(const Expr& e) { add(e.hash()); }
  void add(const Type& t) {
    add(std::uint64_t(t.dtype));
    add(std::uint64_t(t.lanes));
  }
  void add(const std::vector<int>& v) {
    add(v.size());
    for (int i : v)
      add(std::uint64_t(std::int64_t(i)));
  }
  void add(const std::vector<Guard>& guards) {
    add(guards.size());
    for (const Guard& g : guards)
      for (const Expr* e : {&g.value, &g.lo, &g.hi})
        add(*e);
  }
  void add(const Inst& i) {
    add(std::uint64_t(i.kind));
    add(i.type);
    add(std::uint64_t(i.constant.dtype));
    add(i.constant.bits);
    add(std::uint64_t(std::int64_t(i.number)));
    add(i.expr);
    add(std::uint64_t(i.op));
    add(std::uint64_t(i.monoid));
    add(std::uint64_t(std::int64_t(i.buffer)));
    add(i.mask);
    add(std::uint64_t(i.policy));
    add(i.args);
    add(i.lanes_from);
    add(std::uint64_t(i.element) * 2 + std::uint64_t(i.transposed));
    add(std::uint64_t(std::int64_t(i.source)));
    add(i.source_expr);
    add(std::uint64_t(i.source_transposed) * 2 + std::uint64_t(i.quick));
    add(i.at.size());
    for (const Expr& e : i.at)
      add(e);
  }
  void add(const Block& block) {
    add(block.size());
    for (const Stmt& s : block) {
      add(std::uint64_t(s.kind));
      add(std::uint64_t(std::int64_t(s.target)));
      add(s.inst);
      add(s.args);
      add(std::uint64_t(std::int64_t(s.number)));
      for (const Expr* e : {&s.extent, &s.begin, &s.end, &s.step})
        add(*e);
      add(std::uint64_t(s.bind) * 8 + std::uint64_t(s.order));
      add(std::uint64_t(s.unroll));
      add(s.variables);
      add(s.body);
      add(s.otherwise);
    }
  }
  std::uint64_t value() const { return h_; }

private:
  std::uint64_t h_ = 0x70726f6772616d73u;
};

} // namespace

Expr lane_variable(int lanes) {
  return Expr::symbol(std::string(kLanePrefix) + std::to_string(lanes), 0, lanes - 1);
}

Expr thread_variable(int threads) {
  return Expr::symbol(std::string(kThreadPrefix) + std::to_string(threads), 0, threads - 1);
}

Expr value_symbol(ValueId value) {
  return Expr::symbol(std::string(kValuePrefix) + std::to_string(value), INT64_MIN, INT64_MAX);
}

std::optional<int> lanes_of(const Expr& variable) {
  return number_after(kLanePrefix, variable);
}
std::optional<int> threads_of(const Expr& variable) {
  return number_after(kThreadPrefix, variable);
}
std::optional<ValueId> value_of(const Expr& variable) {
  return number_after(kValuePrefix, variable);
}

std::uint64_t hash_of(const KernelProgram& program) {
  Hasher h;
  h.add(program.buffers.size());
  for (const Buffer& b : program.buffers) {
    h.add(std::uint64_t(b.dtype));
    h.add(std::uint64_t(b.space));
    h.add(b.elements);
    h.add(std::uint64_t(b.read) * 2 + std::uint64_t(b.written));
    h.add(std::uint64_t(b.alignment) * 2 + std::uint64_t(b.aliased));
  }
  h.add(program.dims.size());
  for (const Expr& d : program.dims)
    h.add(d);
  h.add(program.scalars.size());
  for (DType d : program.scalars)
    h.add(std::uint64_t(d));
  for (const auto* types : {&program.variables, &program.values}) {
    h.add(types->size());
    for (const Type& t : *types)
      h.add(t);
  }
  h.add(program.body);
  h.add(program.tensor_maps.size());
  for (const TensorMap& m : program.tensor_maps) {
    h.add(std::uint64_t(m.buffer));
    h.add(m.offset);
    for (const auto* list : {&m.extents, &m.strides}) {
      h.add(list->size());
      for (const Expr& e : *list)
        h.add(e);
    }
    h.add(m.box);
    h.add(std::uint64_t(m.swizzle));
  }
  h.add(program.launch.workers);
  h.add(std::uint64_t(program.launch.threads) * 2 + std::uint64_t(program.launch.resident));
  h.add(std::uint64_t(program.launch.blocks_per_core));
  h.add(std::uint64_t(program.launch.least_shared));
  h.add(std::uint64_t(program.uses_barrier) * 2 + std::uint64_t(program.deterministic));
  if (const auto& p = program.product) {
    for (const LibraryProduct::Matrix* m : {&p->left, &p->right, &p->result})
      for (const std::int64_t v : {std::int64_t{m->buffer}, m->offset, m->batch, m->row, m->column})
        h.add(std::uint64_t(v));
    for (const std::int64_t v :
         {p->batches, p->rows, p->columns, p->depth, std::int64_t{p->bias}, p->bias_offset,
          std::int64_t(p->activation), std::int64_t{p->workspace}, std::int64_t{p->rank}})
      h.add(std::uint64_t(v));
  }
  return h.value();
}

} // namespace egret::kernel

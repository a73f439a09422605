#include "kernel/program.h"

#include "kernel/program_fields.h"
#include "support/hash.h"

#include <algorithm>

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

class ProgramHasher {
public:
  template <class T>
  void operator()(const T& x) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>)
      add(static_cast<std::uint64_t>(x));
    else if constexpr (std::is_same_v<T, Expr>)
      add(x.hash());
    else if constexpr (requires { x.has_value(); }) {
      add(x.has_value());
      if (x)
        (*this)(*x);
    } else if constexpr (requires { std::variant_size<T>::value; }) {
      add(x.index());
      std::visit([this](const auto& alternative) { (*this)(alternative); }, x);
    } else if constexpr (requires { x.begin(); }) {
      add(x.size());
      for (const auto& item : x)
        (*this)(item);
    } else
      members(*this, const_cast<T&>(x));
  }
  void id(IdKind, int number) { (*this)(number); }
  void ids(IdKind, const std::vector<int>& list) { (*this)(list); }
  void add(std::uint64_t v) { h_ = combine(h_, v); }
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

std::size_t ProblemGroup::problem_of(std::int64_t item) const {
  return static_cast<std::size_t>(std::upper_bound(begin.begin(), begin.end() - 1, item) -
                                  begin.begin()) -
         1;
}

std::uint64_t hash_of(const KernelProgram& program) {
  ProgramHasher h;
  h.add(program.buffers.size());
  for (const Buffer& b : program.buffers) {
    h.add(std::uint64_t(b.dtype));
    h.add(std::uint64_t(b.space));
    h.add(std::uint64_t(b.argument));
    h(b.elements);
    h.add(std::uint64_t(b.read) * 2 + std::uint64_t(b.written));
    h.add(std::uint64_t(b.alignment) * 4 + std::uint64_t(b.aliased) * 2 + std::uint64_t(b.settled));
  }
  h.add(program.dims.size());
  for (const Expr& d : program.dims)
    h(d);
  h.add(program.scalars.size());
  for (DType d : program.scalars)
    h.add(std::uint64_t(d));
  for (const auto* types : {&program.variables, &program.values}) {
    h.add(types->size());
    for (const Type& t : *types)
      h(t);
  }
  h(program.groups);
  h(program.body);
  h.add(program.tensor_maps.size());
  for (const TensorMap& m : program.tensor_maps) {
    h.add(std::uint64_t(m.buffer));
    h(m.offset);
    for (const auto* list : {&m.extents, &m.strides}) {
      h.add(list->size());
      for (const Expr& e : *list)
        h(e);
    }
    h(m.box);
    h.add(std::uint64_t(m.swizzle));
  }
  h(program.launch.workers);
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

std::uint64_t hash_of(const Inst& inst) {
  ProgramHasher h;
  h(inst);
  return h.value();
}

bool has_settled(const KernelProgram& program) {
  return std::ranges::any_of(program.buffers, &Buffer::settled);
}

bool begins_next_at_once(const KernelProgram& program) {
  constexpr std::int64_t kFewBlocks = 64;
  return !has_settled(program) && proves_less_equal(program.launch.workers, Expr(kFewBlocks));
}

} // namespace egret::kernel

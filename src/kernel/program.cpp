#include "kernel/program.h"

#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <set>
#include <utility>

namespace egret::kernel {

namespace {

// Names that no user's symbol can have, since those begin with a letter.
constexpr std::string_view kLanePrefix = "%lane";
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

/// Walks a program with what is visible at each place.
class Verifier {
public:
  explicit Verifier(const KernelProgram& program)
      : p_(program), visible_(program.values.size(), false), set_(program.values.size(), false) {}

  void run() {
    for (std::size_t b = 0; b < p_.buffers.size(); ++b)
      check(b == 0 || p_.buffers[b].space != Space::Argument ||
                p_.buffers[b - 1].space == Space::Argument,
            "argument buffer {} comes after other buffers", p_.buffers[b].name);
    int pointers = 0;
    for (const Buffer& b : p_.buffers)
      if (b.space == Space::Argument)
        check(b.argument == pointers++, "buffer {} has argument number {}", b.name, b.argument);
    for (const Type& t : p_.values)
      check_type(t);
    for (const Type& t : p_.variables)
      check_type(t);
    block(p_.body);
  }

private:
  template <class... Args>
  void check(bool held, fmt::format_string<Args...> format, Args&&... args) const {
    if (!held)
      ensure(false, "kernel {}: {}", p_.name, fmt::format(format, std::forward<Args>(args)...));
  }

  void check_type(const Type& t) const {
    check(t.lanes >= 1 && t.lanes <= 64 && (t.lanes & (t.lanes - 1)) == 0,
          "{} lanes are not a power of two below 65", t.lanes);
  }

  const Type& value(ValueId v) const {
    check(v >= 0 && std::size_t(v) < p_.values.size() && visible_[v], "value {} is not visible", v);
    return p_.values[v];
  }

  void expr(const Expr& e, int lanes) const {
    for (const Expr& v : variables_of(e)) {
      if (v.is_axis()) {
        check(std::find(loops_.begin(), loops_.end(), v) != loops_.end(),
              "variable {} of {} is no enclosing loop's", v.str(), e.str());
      } else if (auto l = lanes_of(v)) {
        check(*l == lanes, "{} is used with {} lanes", v.str(), lanes);
      } else if (auto id = value_of(v)) {
        const Type& t = value(*id);
        check(t.dtype == DType::I64 || t.dtype == DType::I32, "index value {} is no i32 or i64",
              *id);
        check(t.lanes == 1 || t.lanes == lanes, "index value {} has {} lanes, not {}", *id, t.lanes,
              lanes);
      } else {
        check(std::find(p_.dims.begin(), p_.dims.end(), v) != p_.dims.end(),
              "symbol {} is not among the dims", v.str());
      }
    }
  }

  void mask(const std::vector<Guard>& guards, int lanes) const {
    for (const Guard& g : guards)
      for (const Expr* e : {&g.value, &g.lo, &g.hi})
        expr(*e, lanes);
  }

  const Buffer& buffer(int b) const {
    check(b >= 0 && std::size_t(b) < p_.buffers.size(), "no buffer {}", b);
    return p_.buffers[b];
  }

  void apply(const Inst& i) const {
    const OpInfo& info = info_of(i.op);
    check(is_elementwise(i.op), "{} is not elementwise", info.name);
    check(i.args.size() == std::size_t(info.arity), "{} has {} operands", info.name, i.args.size());
    for (std::size_t a = 0; a < i.args.size(); ++a) {
      const Type& t = value(i.args[a]);
      check(t.lanes == i.type.lanes, "{} of {} lanes has an operand of {}", info.name, i.type.lanes,
            t.lanes);
      switch (info.dtypes) {
      case DTypeRule::Attribute:
        check(i.op != Op::Bitcast || size_of(t.dtype) == size_of(i.type.dtype),
              "bitcast from {} to {}", name_of(t.dtype), name_of(i.type.dtype));
        break;
      case DTypeRule::Compare:
        check(i.type.dtype == DType::Bool && t.dtype == value(i.args[0]).dtype,
              "{} compares different types", info.name);
        break;
      case DTypeRule::Select:
        check(t.dtype == (a == 0 ? DType::Bool : i.type.dtype), "select mixes types");
        break;
      default:
        check(t.dtype == i.type.dtype, "{} of {} has an operand of {}", info.name,
              name_of(i.type.dtype), name_of(t.dtype));
      }
    }
    if (info.cls == OpClass::Unary || info.cls == OpClass::Binary)
      check(i.type.dtype != DType::F16 && i.type.dtype != DType::BF16,
            "{} in {}: low precision is computed in f32 and cast", info.name,
            name_of(i.type.dtype));
  }

  void inst(const Inst& i) const {
    auto args = [&](std::size_t n) {
      check(i.args.size() == n, "an instruction with {} operands instead of {}", i.args.size(), n);
    };
    switch (i.kind) {
    case InstKind::Constant:
      check(i.constant.dtype == i.type.dtype, "a constant of another dtype");
      break;
    case InstKind::Scalar:
      check(i.number >= 0 && std::size_t(i.number) < p_.scalars.size() &&
                p_.scalars[i.number] == i.type.dtype,
            "no scalar {} of that type", i.number);
      break;
    case InstKind::Index:
      expr(i.expr, i.type.lanes);
      break;
    case InstKind::Apply:
      apply(i);
      break;
    case InstKind::Fma:
      args(3);
      for (ValueId a : i.args)
        check(value(a) == i.type, "fma mixes types");
      break;
    case InstKind::Load:
      check(buffer(i.buffer).read, "buffer {} is read", buffer(i.buffer).name);
      check(buffer(i.buffer).dtype == i.type.dtype, "a load of another dtype than buffer {}'s",
            buffer(i.buffer).name);
      expr(i.expr, i.type.lanes);
      mask(i.mask, i.type.lanes);
      break;
    case InstKind::ReadVar:
      check(i.number >= 0 && std::size_t(i.number) < p_.variables.size() &&
                p_.variables[i.number] == i.type,
            "no variable {} of that type", i.number);
      break;
    case InstKind::Splat:
      args(1);
      check(value(i.args[0]) == Type{i.type.dtype, 1}, "splat of a vector or another dtype");
      break;
    case InstKind::Extract:
      args(1);
      check(i.type.lanes == 1 && i.number >= 0 && i.number < value(i.args[0]).lanes &&
                value(i.args[0]).dtype == i.type.dtype,
            "no lane {} to extract", i.number);
      break;
    case InstKind::ReduceLanes:
      args(1);
      check(i.type.lanes == 1 && value(i.args[0]).dtype == i.type.dtype &&
                i.monoid != Monoid::ArgMax,
            "lanes cannot be combined that way");
      break;
    case InstKind::Shuffle: {
      int lanes = 0;
      for (ValueId a : i.args) {
        check(value(a).dtype == i.type.dtype, "shuffle mixes types");
        lanes += value(a).lanes;
      }
      check(!i.args.empty() && i.args.size() <= 2 &&
                i.lanes_from.size() == std::size_t(i.type.lanes),
            "shuffle of {} values into {} lanes", i.args.size(), i.type.lanes);
      for (int l : i.lanes_from)
        check(l >= 0 && l < lanes, "shuffle takes lane {} of {}", l, lanes);
      break;
    }
    case InstKind::Test:
      check(i.type.dtype == DType::Bool, "a test is bool");
      mask(i.mask, i.type.lanes);
      break;
    }
  }

  void block(const Block& statements) {
    std::vector<ValueId> made;
    for (const Stmt& s : statements)
      statement(s, made);
    for (ValueId v : made)
      visible_[v] = false;
  }

  void statement(const Stmt& s, std::vector<ValueId>& made) {
    switch (s.kind) {
    case StmtKind::Let:
      check(s.target >= 0 && std::size_t(s.target) < p_.values.size() && !set_[s.target],
            "value {} is set twice", s.target);
      inst(s.inst);
      check(p_.values[s.target] == s.inst.type, "value {} has another type", s.target);
      visible_[s.target] = set_[s.target] = true;
      made.push_back(s.target);
      break;
    case StmtKind::Set:
      check(s.args.size() == 1 && s.target >= 0 && std::size_t(s.target) < p_.variables.size() &&
                p_.variables[s.target] == value(s.args[0]),
            "variable {} is set to another type", s.target);
      break;
    case StmtKind::Store: {
      check(s.args.size() == 1, "a store of {} values", s.args.size());
      const Type& t = value(s.args[0]);
      check(buffer(s.inst.buffer).written, "buffer {} is written", buffer(s.inst.buffer).name);
      check(buffer(s.inst.buffer).dtype == t.dtype, "a store of another dtype than buffer {}'s",
            buffer(s.inst.buffer).name);
      expr(s.inst.expr, t.lanes);
      mask(s.inst.mask, t.lanes);
      break;
    }
    case StmtKind::Prefetch:
      buffer(s.inst.buffer);
      expr(s.inst.expr, 1);
      break;
    case StmtKind::For: {
      for (const Expr* e : {&s.begin, &s.end, &s.step})
        expr(*e, 1);
      check(s.step.lower() >= 1, "loop {} has step {}", s.number, s.step.str());
      check(numbers_.insert(s.number).second, "loop variable {} is used twice", s.number);
      bool core = s.bind == Bind::Core;
      check(!core || !in_core_, "loop {}: a core loop in a core loop", s.number);
      bool was = std::exchange(in_core_, in_core_ || core);
      loops_.push_back(Expr::axis(s.number, s.extent));
      block(s.body);
      loops_.pop_back();
      in_core_ = was;
      break;
    }
    case StmtKind::If:
      mask(s.inst.mask, 1);
      block(s.body);
      block(s.otherwise);
      break;
    case StmtKind::Barrier:
      check(p_.uses_barrier, "a barrier in a program that says it has none");
      check(!in_core_, "a barrier that not all workers reach");
      break;
    }
  }

  const KernelProgram& p_;
  std::vector<bool> visible_, set_;
  std::vector<Expr> loops_;
  std::set<int> numbers_;
  bool in_core_ = false;
};

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
      add(std::uint64_t(s.bind));
      add(std::uint64_t(s.unroll));
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

Expr value_symbol(ValueId value) {
  return Expr::symbol(std::string(kValuePrefix) + std::to_string(value), INT64_MIN, INT64_MAX);
}

std::optional<int> lanes_of(const Expr& variable) {
  return number_after(kLanePrefix, variable);
}
std::optional<ValueId> value_of(const Expr& variable) {
  return number_after(kValuePrefix, variable);
}

void verify(const KernelProgram& program) {
  Verifier(program).run();
}

std::uint64_t hash_of(const KernelProgram& program) {
  Hasher h;
  h.add(program.buffers.size());
  for (const Buffer& b : program.buffers) {
    h.add(std::uint64_t(b.dtype));
    h.add(std::uint64_t(b.space));
    h.add(b.elements);
    h.add(std::uint64_t(b.read) * 2 + std::uint64_t(b.written));
    h.add(std::uint64_t(b.alignment));
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
  h.add(program.launch.workers);
  for (int i = 0; i < 3; ++i) {
    h.add(program.launch.grid[i]);
    h.add(program.launch.block[i]);
  }
  h.add(program.launch.shared_bytes);
  h.add(std::uint64_t(program.uses_barrier) * 2 + std::uint64_t(program.deterministic));
  return h.value();
}

} // namespace egret::kernel

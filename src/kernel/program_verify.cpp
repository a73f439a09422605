// What every kernel program promises, checked statement by statement.
#include "kernel/program.h"

#include "ir/format.h"
#include "support/fail.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace egret::kernel {

namespace {

/// Bounds of a group's numbers, far from where their sums and products overflow.
constexpr std::int64_t kMostItems = std::int64_t{1} << 40, kMostSize = std::int64_t{1} << 44;

/// Walks a program with what is visible at each place, and on a GPU with what is the same in which
/// threads: a level is the size of the aligned groups of threads in which a value or the way to a
/// statement is equal, from all threads of the block down to 1.
class Verifier {
public:
  explicit Verifier(const KernelProgram& program)
      : p_(program), visible_(program.values.size(), false), set_(program.values.size(), false),
        threads_(program.launch.threads), level_(threads_), value_level_(program.values.size(), 1) {
  }

  void run() {
    for (std::size_t b = 0; b < p_.buffers.size(); ++b)
      check(b == 0 || p_.buffers[b].space != Space::Argument ||
                p_.buffers[b - 1].space == Space::Argument,
            "argument buffer {} comes after other buffers", p_.buffers[b].name);
    int pointers = 0;
    for (const Buffer& b : p_.buffers)
      if (b.space == Space::Argument)
        check(b.argument == pointers++, "buffer {} has argument number {}", b.name, b.argument);
    launch();
    for (const Type& t : p_.values)
      check_type(t);
    for (const Type& t : p_.variables)
      check_type(t);
    for (const ProblemGroup& g : p_.groups)
      group(g);
    if (p_.product)
      product(*p_.product);
    settled();
    block(p_.body);
  }

private:
  /// Programs with settled buffers wait for the launch before by themselves.
  void settled() {
    const auto waits = [&](bool fully) {
      return any_statement(p_.body, [&](const Stmt& s) {
        const auto* use = get_if<Intrinsic>(s);
        return use && use->id == IntrinsicId::GridDependencyWait &&
               !(fully && use->number("unless_settled") != 0);
      });
    };
    for (const Buffer& b : p_.buffers)
      check(!b.settled || (b.space == Space::Argument && !b.written && waits(true)),
            "buffer {} is settled, but no argument that is only read, or nothing waits", b.name);
    if (!waits(false))
      return;
    check(has_settled(p_), "a program waits for the launch before, and has no settled buffer");
    waited_ = Waited::No;
  }

  /// Of what other launches may be writing.
  void reach(const Buffer& b, bool only_read) const {
    check(b.space == Space::Shared || waited_ == Waited::Yes ||
              (waited_ == Waited::ForSettled && only_read && b.settled),
          "buffer {} is accessed before the launch before has ended", b.name);
  }

  void product(const LibraryProduct& p) const {
    check(threads_ > 0 && p_.body.empty() && p_.dims.empty() && p_.scalars.empty(),
          "a library's product beside other work");
    check(p.batches > 0 && p.rows > 0 && p.columns > 0 && p.depth > 0 && p.rank >= 0,
          "a library's product of nothing");
    matrix(p, p.left, p.rows, p.depth, false);
    matrix(p, p.right, p.columns, p.depth, false);
    matrix(p, p.result, p.rows, p.columns, true);
    check(p.result.column == 1 || p.columns == 1, "columns of a product's result lie apart");
    const DType type = p_.buffers[std::size_t(p.left.buffer)].dtype;
    check(type == p_.buffers[std::size_t(p.right.buffer)].dtype, "factors of two types");
    if (p.bias >= 0) {
      const Buffer& b = argument(p.bias, false);
      check(b.dtype == type && p.bias_offset >= 0 &&
                p.bias_offset + p.columns <= b.elements.upper(),
            "a bias in {} that does not fit", b.name);
    }
    if (p.workspace >= 0)
      check(std::size_t(p.workspace) < p_.buffers.size() &&
                p_.buffers[std::size_t(p.workspace)].space == Space::Workspace,
            "buffer {} is no workspace", p.workspace);
  }
  const Buffer& argument(int number, bool written) const {
    check(number >= 0 && std::size_t(number) < p_.buffers.size(), "no buffer {}", number);
    const Buffer& b = p_.buffers[std::size_t(number)];
    check(b.space == Space::Argument && (written ? b.written : b.read),
          "buffer {} is not what a product asks for", b.name);
    return b;
  }
  void matrix(const LibraryProduct& p, const LibraryProduct::Matrix& m, std::int64_t rows,
              std::int64_t columns, bool written) const {
    const Buffer& b = argument(m.buffer, written);
    check(m.offset >= 0 && m.batch >= 0 && m.row >= 0 && m.column >= 0 &&
              (m.row == 1 || m.column == 1 || rows == 1 || columns == 1),
          "a matrix in {} of no form that a library takes", b.name);
    std::int64_t last = m.offset;
    for (const auto& [count, stride] :
         {std::pair{p.batches, m.batch}, {rows, m.row}, {columns, m.column}}) {
      std::int64_t span = 0;
      check(!__builtin_mul_overflow(count - 1, stride, &span) &&
                !__builtin_add_overflow(last, span, &last),
            "a matrix in {} of more elements than can be counted", b.name);
    }
    check(last < b.elements.upper(), "a matrix that ends beyond {}", b.name);
  }

  void launch() const {
    const Launch& l = p_.launch;
    check(l.threads >= 0 && l.threads <= 1024 && l.threads % 32 == 0,
          "{} threads of a block are no multiple of 32 up to 1024", l.threads);
    for (const Buffer& b : p_.buffers) {
      bool shared = b.space == Space::Shared, counter = b.space == Space::Counter;
      check(threads_ > 0 || !(shared || counter), "buffer {} is of a GPU's memory", b.name);
      check(threads_ == 0 || b.space != Space::Worker, "buffer {} is of a CPU's worker", b.name);
      check(!shared || b.elements.is_constant(), "shared buffer {} has no constant size", b.name);
      check(!counter || (b.dtype == DType::U32 && b.elements.is_constant()),
            "counter {} is not of u32 and of constant size", b.name);
    }
  }

  // --- Groups of problems

  static bool is_size(const ProblemGroup& g, const Expr& symbol) {
    return symbol == g.item || std::find(g.sizes.begin(), g.sizes.end(), symbol) != g.sizes.end();
  }

  void group(const ProblemGroup& g) const {
    const std::size_t problems = g.problems();
    check(problems > 0 && g.begin[0] == 0 && g.begin.back() > 0 &&
              std::is_sorted(g.begin.begin(), g.begin.end()),
          "a group whose items are not in a row");
    check(g.begin.back() <= kMostItems, "a group of {} items", g.begin.back());
    check(g.values.size() == g.sizes.size() && g.arguments.size() == g.buffers.size(),
          "a group of {} sizes and {} buffers has values of {} and {}", g.sizes.size(),
          g.buffers.size(), g.values.size(), g.arguments.size());
    std::int64_t most = 0;
    for (std::size_t p = 0; p < problems; ++p)
      most = std::max(most, g.begin[p + 1] - g.begin[p]);
    check(g.item.is_symbol() && g.item.lower() <= 0 && g.item.upper() >= most - 1,
          "{} does not count the items of a problem", g.item);
    for (std::size_t s = 0; s < g.sizes.size(); ++s) {
      const Expr& size = g.sizes[s];
      check(size.is_symbol() && g.values[s].size() == problems &&
                std::count(g.sizes.begin(), g.sizes.end(), size) == 1 && size != g.item &&
                std::find(p_.dims.begin(), p_.dims.end(), size) == p_.dims.end(),
            "{} is no size of the {} problems alone", size, problems);
      for (const std::int64_t v : g.values[s])
        check(v >= size.lower() && v <= size.upper() && v % size.divisor() == 0 &&
                  v >= -kMostSize && v <= kMostSize,
              "size {} is {} in a problem", size, v);
    }
    for (std::size_t i = 0; i < g.buffers.size(); ++i) {
      check(g.buffers[i] >= 0 && std::size_t(g.buffers[i]) < p_.buffers.size(), "no buffer {}",
            g.buffers[i]);
      check(g.arguments[i].size() == problems, "a buffer of {} problems is in {}", problems,
            g.arguments[i].size());
      for (const int a : g.arguments[i])
        problem_buffer(p_.buffers[std::size_t(g.buffers[i])], a);
    }
    for (const std::vector<int>& scalar : g.scalars) {
      check(scalar.size() == problems, "a scalar of {} problems is in {}", problems, scalar.size());
      for (const int s : scalar)
        check(s >= 0 && std::size_t(s) < p_.scalars.size() &&
                  p_.scalars[std::size_t(s)] == p_.scalars[std::size_t(scalar[0])],
              "scalar {} cannot be one of the problems", s);
    }
  }

  void problem_buffer(const Buffer& b, int number) const {
    check(number >= 0 && std::size_t(number) < p_.buffers.size(), "no buffer {}", number);
    const Buffer& a = p_.buffers[std::size_t(number)];
    check(b.space == Space::Problem && a.space == Space::Argument && a.dtype == b.dtype &&
              (a.read || !b.read) && (a.written || !b.written) && (b.aliased || !a.aliased) &&
              (b.written || !a.written) && a.alignment % b.alignment == 0,
          "argument {} cannot be buffer {} in a problem", a.name, b.name);
  }

  void problem(const InProblem& x) {
    check(x.group >= 0 && std::size_t(x.group) < p_.groups.size(), "no group {}", x.group);
    check(!group_, "a problem within a problem");
    expr(x.item, 1);
    check(level_of(x.item) == threads_, "the problem of group {} differs by thread", x.group);
    group_ = &p_.groups[std::size_t(x.group)];
    block(x.body);
    group_ = nullptr;
  }

  // --- What is equal in which threads

  /// Of `e`, whose variables have levels of their own.
  int level_of(const Expr& e) const {
    if (threads_ == 0)
      return 0;
    int level = threads_;
    for (const Expr& v : variables_of(e)) {
      if (threads_of(v)) {
        level = std::min(level, group_of(e, v));
      } else if (v.is_axis()) {
        auto it = loop_level_.find(v.axis_number());
        level = std::min(level, it == loop_level_.end() ? 1 : it->second);
      } else if (auto id = value_of(v)) {
        level = std::min(level, value_level_.at(*id));
      }
    }
    return level;
  }

  /// The largest group of threads in which an expression of the thread's number is equal.
  int group_of(const Expr& e, const Expr& thread) const {
    for (int g = 32; g > 1; g /= 2) {
      Expr group = Expr::symbol(fmt::format("%group{}", threads_ / g), 0, threads_ / g - 1);
      Expr rest = Expr::symbol(fmt::format("%rest{}", g), 0, g - 1);
      Expr split = substitute(e, [&](const Expr& v) -> std::optional<Expr> {
        return v == thread ? std::optional<Expr>(group * Expr(g) + rest) : std::nullopt;
      });
      std::vector<Expr> variables = variables_of(split);
      if (std::find(variables.begin(), variables.end(), rest) == variables.end())
        return g;
    }
    return 1;
  }

  int level_of(const std::vector<Guard>& guards) const {
    int level = threads_;
    for (const Guard& g : guards)
      for (const Expr* e : {&g.value, &g.lo, &g.hi})
        level = std::min(level, level_of(*e));
    return level;
  }

  int level_of(const Inst& i) const {
    int level = threads_;
    const auto with = [&](ValueId v) { level = std::min(level, value_level_[std::size_t(v)]); };
    std::visit(
        overloaded{[](const inst::Constant&) {}, [](const inst::Argument&) {},
                   [&](const inst::Index& x) { level = level_of(x.expr); },
                   [&](const inst::Apply& x) {
                     for (ValueId v : x.args)
                       with(v);
                   },
                   [&](const inst::Fma& x) {
                     for (ValueId v : x.args)
                       with(v);
                   },
                   [&](const inst::Load&) { level = 1; }, [&](const inst::Read&) { level = 1; },
                   [&](const inst::Splat& x) { with(x.value); },
                   [&](const inst::Extract& x) { with(x.value); },
                   [&](const inst::ReduceLanes& x) { with(x.value); },
                   [&](const inst::Shuffle& x) {
                     for (ValueId v : x.args)
                       with(v);
                   },
                   [&](const inst::Test& x) { level = level_of(x.mask); },
                   [&](const Intrinsic& x) {
                     level = x.id == IntrinsicId::ReduceThreads ? int(x.number("threads")) : 1;
                   }},
        i.op);
    return level;
  }

  /// Checks that groups of `threads` threads come to this place together.
  void together(int threads, const char* what) const {
    check(level_ >= threads && (threads == threads_ || threads <= 32 || level_ == threads_),
          "{} of {} threads where only {} come together", what, threads, level_);
  }

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
              "variable {} of {} is no enclosing loop's", v, e);
      } else if (auto l = lanes_of(v)) {
        check(*l == lanes, "{} is used with {} lanes", v, lanes);
      } else if (auto t = threads_of(v)) {
        check(*t == threads_ && threads_ > 0, "{} is used with {} threads", v, threads_);
      } else if (auto id = value_of(v)) {
        const Type& t = value(*id);
        check(t.dtype == DType::I64 || t.dtype == DType::I32, "index value {} is no i32 or i64",
              *id);
        check(t.lanes == 1 || t.lanes == lanes, "index value {} has {} lanes, not {}", *id, t.lanes,
              lanes);
      } else if (!group_ || !is_size(*group_, v)) {
        check(std::find(p_.dims.begin(), p_.dims.end(), v) != p_.dims.end(),
              "symbol {} is not among the dims", v);
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
    const Buffer& own = p_.buffers[b];
    if (own.space == Space::Problem)
      check(group_ && std::find(group_->buffers.begin(), group_->buffers.end(), b) !=
                          group_->buffers.end(),
            "buffer {} outside of its problems", own.name);
    return own;
  }

  void apply(const inst::Apply& i, const Type& type) const {
    const OpInfo& info = info_of(i.op);
    check(is_elementwise(i.op), "{} is not elementwise", info.name);
    check(!i.approximate || has_approximation(i, type), "{} has no approximation", info.name);
    check(i.args.size() == std::size_t(info.arity), "{} has {} operands", info.name, i.args.size());
    for (std::size_t a = 0; a < i.args.size(); ++a) {
      const Type& t = value(i.args[a]);
      if (i.op == Op::Bitcast && t.lanes != type.lanes) {
        check(t.lanes == 2 * type.lanes && size_of(t.dtype) == 2 && type.dtype == DType::U32 &&
                  p_.launch.threads == 0,
              "bitcast from {} of {} lanes to {} of {}", name_of(t.dtype), t.lanes,
              name_of(type.dtype), type.lanes);
        return;
      }
      check(t.lanes == type.lanes, "{} of {} lanes has an operand of {}", info.name, type.lanes,
            t.lanes);
      switch (info.dtypes) {
      case DTypeRule::Attribute:
        check(i.op != Op::Bitcast || size_of(t.dtype) == size_of(type.dtype),
              "bitcast from {} to {}", name_of(t.dtype), name_of(type.dtype));
        break;
      case DTypeRule::Compare:
        check(type.dtype == DType::Bool && t.dtype == value(i.args[0]).dtype,
              "{} compares different types", info.name);
        break;
      case DTypeRule::Select:
        check(t.dtype == (a == 0 ? DType::Bool : type.dtype), "select mixes types");
        break;
      case DTypeRule::Float:
      case DTypeRule::Integer:
      case DTypeRule::IntegerBool:
      case DTypeRule::Number:
      case DTypeRule::Any:
      case DTypeRule::Index:
      case DTypeRule::Gather:
      case DTypeRule::Scatter:
      case DTypeRule::Order:
        check(t.dtype == type.dtype, "{} of {} has an operand of {}", info.name,
              name_of(type.dtype), name_of(t.dtype));
      }
    }
    if (info.cls == OpClass::Unary || info.cls == OpClass::Binary)
      check(!is_low(type.dtype), "{} in {}: low precision is computed in f32 and cast", info.name,
            name_of(type.dtype));
  }

  bool has_approximation(const inst::Apply& i, const Type& type) const {
    if (i.args.size() != 1)
      return false;
    if (i.op == Op::Cast)
      return type.dtype == DType::BF16 && threads_ == 0 && value(i.args[0]).dtype == DType::F32;
    return type.dtype == DType::F32 &&
           (i.op == Op::Exp || (threads_ > 0 && (i.op == Op::Exp2 || i.op == Op::Recip)));
  }

  void fma(const inst::Fma& i, const Type& type) const {
    const bool sums = type.dtype == DType::F32 || type.dtype == DType::I32;
    if (sums && value(i.args[0]).dtype == DType::U32) { // of two products
      check(threads_ == 0, "fma of pairs on a GPU");
      for (std::size_t a : {0u, 1u})
        check(value(i.args[a]) == Type{DType::U32, type.lanes}, "fma mixes types");
      check(value(i.args[2]) == type, "fma mixes types");
      return;
    }
    for (ValueId a : i.args)
      check(value(a) == type, "fma mixes types");
  }

  void shuffle(const inst::Shuffle& i, const Type& type) const {
    int lanes = 0;
    for (ValueId a : i.args) {
      check(value(a).dtype == type.dtype, "shuffle mixes types");
      lanes += value(a).lanes;
    }
    check(!i.args.empty() && i.args.size() <= 2 && i.lanes_from.size() == std::size_t(type.lanes),
          "shuffle of {} values into {} lanes", i.args.size(), type.lanes);
    for (int l : i.lanes_from)
      check(l >= 0 && l < lanes, "shuffle takes lane {} of {}", l, lanes);
  }

  const Type& variable(VarId v) const {
    check(v >= 0 && std::size_t(v) < p_.variables.size(), "no variable {}", v);
    return p_.variables[std::size_t(v)];
  }

  void inst(const Inst& i) const {
    const Type& type = i.type;
    std::visit(
        overloaded{
            [&](const inst::Constant& x) {
              check(x.value.dtype == type.dtype, "a constant of another dtype");
            },
            [&](const inst::Argument& x) {
              check(x.number >= 0 ||
                        (group_ && std::size_t(-1 - x.number) < group_->scalars.size()),
                    "no scalar {} of a problem", -1 - x.number);
              const auto number = std::size_t(scalar_of(x, group_, 0));
              check(number < p_.scalars.size() && p_.scalars[number] == type.dtype,
                    "no scalar {} of that type", x.number);
            },
            [&](const inst::Index& x) { expr(x.expr, type.lanes); },
            [&](const inst::Apply& x) { apply(x, type); },
            [&](const inst::Fma& x) { fma(x, type); },
            [&](const inst::Load& x) {
              const Buffer& from = buffer(x.from.buffer);
              check(from.read, "buffer {} is read", from.name);
              reach(from, true);
              check(from.dtype == type.dtype, "a load of another dtype than buffer {}'s",
                    from.name);
              expr(x.from.index, type.lanes);
              mask(x.mask, type.lanes);
            },
            [&](const inst::Read& x) {
              check(variable(x.variable) == type, "variable {} has another type", x.variable);
            },
            [&](const inst::Splat& x) {
              check(value(x.value) == Type{type.dtype, 1}, "splat of a vector or another dtype");
            },
            [&](const inst::Extract& x) {
              check(type.lanes == 1 && x.lane >= 0 && x.lane < value(x.value).lanes &&
                        value(x.value).dtype == type.dtype,
                    "no lane {} to extract", x.lane);
            },
            [&](const inst::ReduceLanes& x) {
              check(type.lanes == 1 && value(x.value).dtype == type.dtype &&
                        x.monoid != Monoid::ArgMax && x.monoid != Monoid::Linear,
                    "lanes cannot be combined that way");
            },
            [&](const inst::Shuffle& x) { shuffle(x, type); },
            [&](const inst::Test& x) {
              check(type.dtype == DType::Bool, "a test is bool");
              mask(x.mask, type.lanes);
            },
            [&](const Intrinsic& x) {
              check(info_of(x.id).result, "{} makes no value", info_of(x.id).name);
              intrinsic(x, type);
            }},
        i.op);
  }

  // --- Intrinsics, by their rows

  void intrinsic(const Intrinsic& use, const Type& result) const {
    const IntrinsicInfo& info = info_of(use.id);
    const auto fits = [&](const auto& given, const auto& operands, const char* what) {
      std::size_t least = 0;
      for (const auto& operand : operands)
        least += !operand.optional;
      check(given.size() >= least && given.size() <= operands.size(), "{} of {} {}", info.name,
            given.size(), what);
    };
    fits(use.memory, info.memory, "places in memory");
    fits(use.values, info.values, "values");
    check(use.numbers.size() == info.numbers.size(), "{} of {} numbers", info.name,
          use.numbers.size());
    check(info.any_indices || use.indices.size() == info.indices.size(), "{} of {} indices",
          info.name, use.indices.size());
    check(info.masked || use.mask.empty(), "{} under a mask", info.name);
    for (std::size_t i = 0; i < use.numbers.size(); ++i)
      number(info, info.numbers[i], use.numbers[i]);
    comes_together(use, info);
    for (std::size_t i = 0; i < use.memory.size(); ++i)
      memory(info, info.memory[i], use.memory[i]);
    for (std::size_t i = 0; i < use.values.size(); ++i)
      check(!info.values[i].type || value(use.values[i]) == *info.values[i].type,
            "{}: {} has another type", info.name, info.values[i].name);
    for (std::size_t i = 0; i < use.values.size(); ++i)
      value(use.values[i]);
    check(use.variables.empty() || info.variables || info.any_variables, "{} of variables",
          info.name);
    for (VarId v : use.variables)
      check(info.variables ? variable(v) == *info.variables : size_of(variable(v).dtype) == 4,
            "{} does not use variable {}", info.name, v);
    for (std::size_t i = 0; i < use.indices.size(); ++i) {
      const IndexOperand& operand = info.indices[info.any_indices ? 0 : i];
      expr(use.indices[i], 1);
      check(!operand.uniform || level_of(use.indices[i]) >= uniform_level(info),
            "{}: {} differs by thread", info.name, operand.name);
    }
    mask(use.mask, 1);
    if (info.refused)
      if (const std::string why = info.refused(p_, use, result); !why.empty())
        check(false, "{}", why);
  }

  /// Threads in which a uniform operand must be the same.
  int uniform_level(const IntrinsicInfo& info) const {
    return info.scope == IntrinsicScope::Block || info.scope == IntrinsicScope::Grid ? threads_
                                                                                     : level_;
  }

  void number(const IntrinsicInfo& info, const NumberOperand& operand, std::int64_t n) const {
    std::int64_t least = 0, most = 1;
    switch (operand.kind) {
    case NumberOperand::Kind::Count:
      least = operand.least;
      most = operand.most;
      break;
    case NumberOperand::Kind::Flag:
      break;
    case NumberOperand::Kind::DType:
      most = kDTypes - 1;
      break;
    case NumberOperand::Kind::Monoid:
      most = static_cast<std::int64_t>(Monoid::ArgMax);
      break;
    }
    check(n >= least && n <= most, "{}: there is no {} {}", info.name, operand.name, n);
  }

  void memory(const IntrinsicInfo& info, const MemoryOperand& operand, const Address& at) const {
    const Buffer& b = buffer(at.buffer);
    reach(b, operand.effect == MemoryOperand::Effect::Read);
    check(std::find(operand.spaces.begin(), operand.spaces.end(), b.space) != operand.spaces.end(),
          "{}: {} is in buffer {}", info.name, operand.name, b.name);
    check(!operand.dtype || b.dtype == *operand.dtype, "{}: {} is of {} in buffer {}", info.name,
          operand.name, name_of(b.dtype), b.name);
    switch (operand.effect) {
    case MemoryOperand::Effect::None:
      break;
    case MemoryOperand::Effect::Read:
      check(b.read, "buffer {} is read", b.name);
      break;
    case MemoryOperand::Effect::Write:
      check(b.written, "buffer {} is written", b.name);
      break;
    case MemoryOperand::Effect::Update:
      check(b.read && b.written, "buffer {} is read and written", b.name);
      break;
    }
    expr(at.index, 1);
    check(!operand.uniform || level_of(at.index) >= uniform_level(info),
          "the place in counter {} differs by thread", b.name);
  }

  /// Checks that the threads that execute an intrinsic together all come here.
  void comes_together(const Intrinsic& use, const IntrinsicInfo& info) const {
    const std::string what(info.name);
    if (use.id == IntrinsicId::ReduceThreads || use.id == IntrinsicId::ScanThreads) {
      check(threads_ > 0, "threads are combined in a program without threads");
      return together(static_cast<int>(use.number("threads")), what.c_str());
    }
    switch (info.scope) {
    case IntrinsicScope::Lane:
      check(threads_ > 0 || !info.requirement, "{} on a CPU", info.name);
      return;
    case IntrinsicScope::CpuThread:
      check(threads_ == 0, "{} on a GPU", info.name);
      return;
    case IntrinsicScope::Subgroup:
    case IntrinsicScope::SubgroupGroup:
      check(threads_ > 0, "{} on a CPU", info.name);
      return together(32, what.c_str());
    case IntrinsicScope::Block:
      check(threads_ > 0, "{} on a CPU", info.name);
      return together(threads_, what.c_str());
    case IntrinsicScope::Grid:
      check(threads_ > 0, "{} on a CPU", info.name);
      check(!in_core_ || (use.id == IntrinsicId::GridBarrier && use.number("blocks") > 0),
            "{}: not all blocks come here", info.name);
      return together(threads_, what.c_str());
    }
  }

  // --- Statements

  void block(const Block& statements) {
    std::vector<ValueId> made;
    for (const Stmt& s : statements)
      statement(s, made);
    for (ValueId v : made)
      visible_[std::size_t(v)] = false;
  }

  void statement(const Stmt& s, std::vector<ValueId>& made) {
    std::visit(
        overloaded{[&](const Let& x) {
                     let(x);
                     made.push_back(x.target);
                   },
                   [&](const Assign& x) {
                     check(variable(x.variable) == value(x.value),
                           "variable {} is set to another type", x.variable);
                   },
                   [&](const Store& x) { store(x); }, [&](const For& x) { loop(x); },
                   [&](const If& x) {
                     mask(x.condition, 1);
                     const int level =
                         std::exchange(level_, std::min(level_, level_of(x.condition)));
                     const bool moved = moved_registers_;
                     const Waited waited = waited_;
                     block(x.body);
                     const bool moved_there = std::exchange(moved_registers_, moved);
                     const Waited waited_there = std::exchange(waited_, waited);
                     block(x.otherwise);
                     moved_registers_ = moved_registers_ || moved_there;
                     waited_ = std::min(waited_, waited_there);
                     level_ = level;
                   },
                   [&](const Barrier&) { barrier(); },
                   [&](const Intrinsic& x) {
                     const IntrinsicInfo& info = info_of(x.id);
                     check(!info.result && !info.body, "{} stands alone", info.name);
                     intrinsic(x, {});
                     if (x.id == IntrinsicId::BulkTensorCopy)
                       reach(buffer(p_.tensor_maps[std::size_t(x.number("map"))].buffer), true);
                     if (x.id == IntrinsicId::ReallocateRegisters)
                       move_registers();
                     if (x.id == IntrinsicId::GridDependencyWait)
                       waited_ =
                           std::max(waited_, x.number("unless_settled") != 0 ? Waited::ForSettled
                                                                             : Waited::Yes);
                   },
                   [&](const Acquire& x) {
                     check(info_of(x.by.id).body, "{} lets nobody in", info_of(x.by.id).name);
                     intrinsic(x.by, {});
                     const Waited waited = waited_;
                     block(x.body);
                     waited_ = waited;
                   },
                   [&](const InProblem& x) { problem(x); }},
        s.node);
  }

  void let(const Let& x) {
    check(x.target >= 0 && std::size_t(x.target) < p_.values.size() && !set_[std::size_t(x.target)],
          "value {} is set twice", x.target);
    const auto target = std::size_t(x.target);
    inst(x.inst);
    check(p_.values[target] == x.inst.type, "value {} has another type", x.target);
    visible_[target] = set_[target] = true;
    value_level_[target] = threads_ ? std::min(level_of(x.inst), level_) : 0;
  }

  void store(const Store& x) const {
    const Type& t = value(x.value);
    const Buffer& to = buffer(x.to.buffer);
    check(to.written, "buffer {} is written", to.name);
    reach(to, false);
    check(to.dtype == t.dtype, "a store of another dtype than buffer {}'s", to.name);
    expr(x.to.index, t.lanes);
    mask(x.mask, t.lanes);
  }

  /// Warps that go ahead would take the registers that others still wait for, for ever (PTX,
  /// setmaxnreg: all warps synchronize before the next one).
  void move_registers() {
    check(!moved_registers_, "registers are reallocated twice without a barrier between");
    moved_registers_ = true;
  }

  void barrier() {
    moved_registers_ = false;
    check(p_.uses_barrier, "a barrier in a program that says it has none");
    if (threads_ == 0)
      check(!in_core_, "a barrier that not all workers reach");
    else
      together(threads_, "a barrier");
  }

  void loop(const For& x) {
    for (const Expr* e : {&x.begin, &x.end, &x.step})
      expr(*e, 1);
    check(x.step.lower() >= 1, "loop {} has step {}", x.number, x.step);
    check(numbers_.insert(x.number).second, "loop variable {} is used twice", x.number);
    const bool core = x.bind == Bind::Core, grid = x.bind == Bind::Grid;
    check(!core || !in_core_, "loop {}: a core loop in a core loop", x.number);
    check(!core || threads_ == 0, "loop {}: a core loop on a GPU", x.number);
    check(!grid || threads_ > 0, "loop {}: a grid loop on a CPU", x.number);
    check(!grid || !in_core_, "loop {}: a grid loop in a grid loop", x.number);
    check(!x.queue || grid, "loop {}: only a grid's work comes from a queue", x.number);
    const int bounds = std::min({level_of(x.begin), level_of(x.end), level_of(x.step)});
    check(!grid || bounds == threads_, "grid loop {} differs by thread", x.number);
    if (x.queue) {
      check(x.relay || level_ == threads_, "dynamic grid loop {} differs by thread", x.number);
      const Buffer& b = buffer(x.queue->buffer);
      check(b.space == Space::Counter, "buffer {} is no counter", b.name);
      expr(x.queue->index, 1);
      check(level_of(x.queue->index) >= threads_, "the place in counter {} differs by thread",
            b.name);
    }
    if (x.relay) {
      check(x.queue.has_value(), "loop {} is a role's, but of no queue", x.number);
      check(x.relay->leads || level_ >= 32, "loop {} of subgroups that follow differs by lane",
            x.number);
      const Buffer& b = buffer(x.relay->at.buffer);
      check(b.space == Space::Shared && b.dtype == DType::U64 && x.relay->at.index.is_constant() &&
                b.elements.is_constant() &&
                x.relay->at.index.value() + Relay::kWords <= b.elements.value(),
            "buffer {} has no room for a relay", b.name);
    }
    const bool was = std::exchange(in_core_, in_core_ || core || grid);
    const int level = std::exchange(level_, std::min(level_, bounds));
    check(x.number >= 0, "a loop has number {}", x.number);
    loop_level_[x.number] = level_;
    loops_.push_back(Expr::axis(x.number, x.extent));
    const bool moved = moved_registers_;
    const Waited waited = waited_;
    block(x.body);
    waited_ = waited;
    check(moved || !moved_registers_, "loop {} reallocates registers", x.number);
    loops_.pop_back();
    in_core_ = was;
    level_ = level;
  }

  /// For the launch before, on the way to the current statement: as far as all threads that come
  /// here have.
  enum class Waited : std::uint8_t { No, ForSettled, Yes };

  const KernelProgram& p_;
  Waited waited_ = Waited::Yes;
  std::vector<bool> visible_, set_;
  std::vector<Expr> loops_;
  std::set<int> numbers_;
  bool in_core_ = false; ///< or in a grid loop
  int threads_;
  bool moved_registers_ = false; ///< reallocated since the last barrier
  int level_;                    ///< of the way to the current statement
  std::vector<int> value_level_;
  std::map<int, int> loop_level_;
  const ProblemGroup* group_ = nullptr; ///< of the problem around the current statement
};

} // namespace

void verify(const KernelProgram& program) {
  try {
    Verifier(program).run();
  } catch (const Error& error) { // sizes whose products do not fit 64 bits
    ensure(false, "program {}: {}", program.name, error.what());
  }
}

} // namespace egret::kernel

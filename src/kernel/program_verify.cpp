// What every kernel program promises, checked statement by statement.
#include "kernel/program.h"

#include "support/fail.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace egret::kernel {

namespace {

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
    if (p_.product)
      product(*p_.product);
    block(p_.body);
  }

private:
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
    switch (i.kind) {
    case InstKind::Constant:
    case InstKind::Scalar:
      return threads_;
    case InstKind::Load:
    case InstKind::ReadVar:
    case InstKind::ScanThreads:
      return 1;
    case InstKind::ReduceThreads:
      return i.number;
    default:
      break;
    }
    int level = std::min(level_of(i.expr), level_of(i.mask));
    for (ValueId a : i.args)
      level = std::min(level, value_level_[a]);
    return level;
  }

  /// Checks that groups of `threads` threads come to this place together.
  void together(int threads, const char* what) const {
    check(level_ >= threads && (threads == threads_ || threads <= 32 || level_ == threads_),
          "{} of {} threads where only {} come together", what, threads, level_);
  }

  /// `together`: threads that come here together, which must mean the same place.
  void counter(const Inst& i, int together) const {
    const Buffer& b = buffer(i.buffer);
    check(b.space == Space::Counter, "buffer {} is no counter", b.name);
    expr(i.expr, 1);
    check(level_of(i.expr) >= together, "the place in counter {} differs by thread", b.name);
  }

  void posts(int number) const {
    check(threads_ > 0, "posts on a CPU");
    const Buffer& b = buffer(number);
    check(b.space == Space::Counter, "buffer {} is no counter", b.name);
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
              "variable {} of {} is no enclosing loop's", v.str(), e.str());
      } else if (auto l = lanes_of(v)) {
        check(*l == lanes, "{} is used with {} lanes", v.str(), lanes);
      } else if (auto t = threads_of(v)) {
        check(*t == threads_ && threads_ > 0, "{} is used with {} threads", v.str(), threads_);
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
    check(!i.quick ||
              ((i.op == Op::Exp2 || i.op == Op::Recip) && i.type.dtype == DType::F32 &&
               threads_ > 0) ||
              (i.op == Op::Cast && i.type.dtype == DType::BF16 && threads_ == 0 &&
               i.args.size() == 1 && value(i.args[0]).dtype == DType::F32),
          "{} has no quick form", info.name);
    check(i.args.size() == std::size_t(info.arity), "{} has {} operands", info.name, i.args.size());
    for (std::size_t a = 0; a < i.args.size(); ++a) {
      const Type& t = value(i.args[a]);
      if (i.op == Op::Bitcast && t.lanes != i.type.lanes) {
        check(t.lanes == 2 * i.type.lanes && size_of(t.dtype) == 2 && i.type.dtype == DType::U32 &&
                  p_.launch.threads == 0,
              "bitcast from {} of {} lanes to {} of {}", name_of(t.dtype), t.lanes,
              name_of(i.type.dtype), i.type.lanes);
        return;
      }
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
      check(!is_low(i.type.dtype), "{} in {}: low precision is computed in f32 and cast", info.name,
            name_of(i.type.dtype));
  }

  /// Fma of two products.
  bool is_pairs(const Inst& i) const {
    return i.type.dtype == DType::F32 && value(i.args[0]).dtype == DType::U32;
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
      if (is_pairs(i)) {
        check(p_.launch.threads == 0, "fma of pairs on a GPU");
        for (int a : {0, 1})
          check(value(i.args[a]) == Type{DType::U32, i.type.lanes}, "fma mixes types");
        check(value(i.args[2]) == i.type, "fma mixes types");
        break;
      }
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
    case InstKind::ReduceThreads:
      args(1);
      check(threads_ > 0, "threads are combined in a program without threads");
      check(i.type == value(i.args[0]) && i.monoid != Monoid::ArgMax,
            "threads cannot be combined that way");
      check(i.number == threads_ ||
                (i.number >= 2 && i.number <= 32 && (i.number & (i.number - 1)) == 0),
            "groups of {} threads cannot be combined", i.number);
      together(i.number, "a combination");
      break;
    case InstKind::ScanThreads:
      args(1);
      check(threads_ > 0, "threads are combined in a program without threads");
      check(i.type == value(i.args[0]) && i.monoid != Monoid::ArgMax,
            "threads cannot be combined that way");
      check(i.number >= 2 && i.number <= 32 && (i.number & (i.number - 1)) == 0,
            "groups of {} threads cannot be scanned", i.number);
      together(i.number, "a scan");
      break;
    case InstKind::LoadMatrix:
      check(buffer(i.buffer).space == Space::Shared && size_of(buffer(i.buffer).dtype) == 2,
            "matrices are read from buffer {}", buffer(i.buffer).name);
      check((i.number == 1 || i.number == 2 || i.number == 4) &&
                i.type == Type{DType::U32, i.number},
            "{} matrices are read as {} words", i.number, i.type.lanes);
      expr(i.expr, i.type.lanes);
      check((i.expr.divisor()) % 8 == 0, "rows of a matrix in {} begin at {}",
            buffer(i.buffer).name, i.expr.str());
      together(32, "a load of matrices");
      break;
    case InstKind::Mma:
      args(3);
      check(i.element == DType::BF16 || i.element == DType::F16, "a matrix product in {}",
            name_of(i.element));
      check(value(i.args[0]) == Type{DType::U32, 4} && value(i.args[1]) == Type{DType::U32, 2} &&
                value(i.args[2]) == Type{DType::F32, 4} && i.type == Type{DType::F32, 4},
            "a matrix product of other types");
      together(32, "a matrix product");
      break;
    }
  }

  void copy(const Inst& i) const {
    const Buffer &to = buffer(i.buffer), &from = buffer(i.source);
    check(to.space == Space::Shared && to.written, "an asynchronous copy to {}", to.name);
    check(from.space == Space::Argument || from.space == Space::Workspace,
          "an asynchronous copy from {}", from.name);
    check(from.read && from.dtype == to.dtype && i.type.dtype == to.dtype,
          "a copy from {} to {} changes the type", from.name, to.name);
    const auto size = std::int64_t(size_of(to.dtype));
    const std::int64_t bytes = i.type.lanes * size;
    check(bytes == 4 || bytes == 8 || bytes == 16, "a copy of {} bytes", bytes);
    for (const auto& [place, buffer] : {std::pair{&i.expr, &to}, {&i.source_expr, &from}}) {
      expr(*place, 1);
      check(place->divisor() % i.type.lanes == 0 && buffer->alignment % bytes == 0,
            "a copy of {} bytes at {}[{}]", bytes, buffer->name, place->str());
    }
    mask(i.mask, 1);
  }

  void signal(int b, const Expr& place) const {
    check(buffer(b).space == Space::Shared && buffer(b).dtype == DType::U64,
          "a signal in buffer {}", buffer(b).name);
    expr(place, 1);
  }

  void tensor_copy(const Stmt& s) const {
    check(s.number >= 0 && std::size_t(s.number) < p_.tensor_maps.size(), "no tensor map {}",
          s.number);
    const TensorMap& m = p_.tensor_maps[std::size_t(s.number)];
    check(m.extents.size() == m.box.size() && m.strides.size() == m.box.size() &&
              s.inst.at.size() == m.box.size() && !m.box.empty() && m.box.size() <= 5,
          "tensor map {} has another rank", s.number);
    const Buffer &from = buffer(m.buffer), &to = buffer(s.inst.buffer);
    check(from.space == Space::Argument && from.read, "a tensor map of {}", from.name);
    check(to.space == Space::Shared && to.dtype == from.dtype && to.alignment % 128 == 0 &&
              (m.swizzle == 0 || to.alignment % 1024 == 0),
          "a tensor map's box goes to {}", to.name);
    expr(s.inst.expr, 1);
    for (const Expr& e : s.inst.at)
      expr(e, 1);
    signal(s.inst.source, s.inst.source_expr);
  }

  void multiply(const Stmt& s) const {
    const auto size = s.variables.size();
    check(size >= 1 && size <= 32, "an asynchronous product of {} columns", 8 * size);
    for (VarId v : s.variables)
      check(v >= 0 && std::size_t(v) < p_.variables.size() &&
                p_.variables[std::size_t(v)] == Type{DType::F32, 4},
            "an asynchronous product into variable {}", v);
    std::vector<int> matrices{s.inst.source};
    if (s.args.empty())
      matrices.push_back(s.inst.buffer);
    else
      check(s.args.size() == 1 && value(s.args[0]) == Type{DType::U32, 4} && !s.inst.transposed,
            "an asynchronous product of registers that hold no matrix");
    for (int b : matrices)
      check(buffer(b).space == Space::Shared && buffer(b).dtype == s.inst.element &&
                size_of(s.inst.element) == 2 && is_float(s.inst.element) &&
                buffer(b).alignment % 1024 == 0,
            "an asynchronous product of {}", buffer(b).name);
    expr(s.inst.expr, 1);
    expr(s.inst.source_expr, 1);
    mask(s.inst.mask, 1);
    together(32, "an asynchronous product");
  }

  void tile(const Stmt& s) const {
    check(threads_ == 0, "tiles on a GPU");
    const auto number = [&](int n) { check(n >= 0 && n < kTiles, "there is no tile {}", n); };
    number(s.target);
    if (s.kind == StmtKind::TileMultiply) {
      number(s.number);
      number(s.inst.number);
      check(s.target != s.number && s.target != s.inst.number && s.number != s.inst.number,
            "a product of tiles {} and {} into tile {}", s.number, s.inst.number, s.target);
      check(s.inst.element == DType::BF16, "a product of tiles in {}", name_of(s.inst.element));
    }
    if (s.kind != StmtKind::TileLoad && s.kind != StmtKind::TileStore)
      return;
    const Buffer& b = buffer(s.inst.buffer);
    const bool loads = s.kind == StmtKind::TileLoad;
    check(loads ? b.read : b.written, "buffer {} is {}", b.name, loads ? "read" : "written");
    check(size_of(b.dtype) == 4 || (loads && size_of(b.dtype) == 2), "a tile of {} in buffer {}",
          name_of(b.dtype), b.name);
    check(s.inst.mask.empty(), "a tile of buffer {} under a mask", b.name);
    expr(s.inst.expr, 1);
    expr(s.inst.source_expr, 1);
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
      value_level_[s.target] = threads_ ? std::min(level_of(s.inst), level_) : 0;
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
      bool core = s.bind == Bind::Core, grid = s.bind == Bind::Grid;
      check(!core || !in_core_, "loop {}: a core loop in a core loop", s.number);
      check(!core || threads_ == 0, "loop {}: a core loop on a GPU", s.number);
      check(!grid || threads_ > 0, "loop {}: a grid loop on a CPU", s.number);
      check(!grid || !in_core_, "loop {}: a grid loop in a grid loop", s.number);
      check(s.order == WorkOrder::Fixed || grid, "loop {}: only a grid's work is drawn", s.number);
      int bounds = std::min({level_of(s.begin), level_of(s.end), level_of(s.step)});
      if (grid) {
        check(bounds == threads_, "grid loop {} differs by thread", s.number);
        if (s.order == WorkOrder::Drawn) {
          check(level_ == threads_, "drawn grid loop {} differs by thread", s.number);
          counter(s.inst, threads_);
        }
      }
      bool was = std::exchange(in_core_, in_core_ || core || grid);
      int level = std::exchange(level_, std::min(level_, bounds));
      check(s.number >= 0, "a loop has number {}", s.number);
      loop_level_[s.number] = level_;
      loops_.push_back(Expr::axis(s.number, s.extent));
      block(s.body);
      loops_.pop_back();
      in_core_ = was;
      level_ = level;
      break;
    }
    case StmtKind::If: {
      mask(s.inst.mask, 1);
      int level = std::exchange(level_, std::min(level_, level_of(s.inst.mask)));
      block(s.body);
      block(s.otherwise);
      level_ = level;
      break;
    }
    case StmtKind::Barrier:
      check(p_.uses_barrier, "a barrier in a program that says it has none");
      if (threads_ == 0) {
        check(!in_core_, "a barrier that not all workers reach");
        check(s.number == 0, "a barrier of some workers");
      } else if (s.number == 0) {
        together(threads_, "a barrier");
      } else {
        check(s.number > 0 && s.number < 16 && s.end.constant().value_or(0) >= 32 &&
                  s.end.value() % 32 == 0 && s.end.value() <= threads_,
              "barrier {} of {} threads", s.number, s.end.str());
        together(32, "a barrier");
      }
      break;
    case StmtKind::WarpBarrier:
      together(32, "a barrier of a warp");
      break;
    case StmtKind::CopyAsync:
      copy(s.inst);
      break;
    case StmtKind::CommitCopies:
    case StmtKind::WaitCopies:
      check(threads_ > 0 && s.number >= 0, "a wait for copies");
      break;
    case StmtKind::InitSignal:
    case StmtKind::Arrive:
      signal(s.inst.buffer, s.inst.expr);
      check(s.number >= (s.kind == StmtKind::InitSignal ? 1 : 0), "a signal of {}", s.number);
      break;
    case StmtKind::Await:
      signal(s.inst.buffer, s.inst.expr);
      check(s.args.size() == 1 && value(s.args[0]) == Type{DType::I32, 1}, "a parity is one i32");
      break;
    case StmtKind::TensorCopy:
      tensor_copy(s);
      break;
    case StmtKind::MultiplyAsync:
      multiply(s);
      break;
    case StmtKind::FenceProducts:
    case StmtKind::CommitProducts:
    case StmtKind::WaitProducts:
      for (VarId v : s.variables)
        check(v >= 0 && std::size_t(v) < p_.variables.size() &&
                  size_of(p_.variables[std::size_t(v)].dtype) == 4,
              "products do not use variable {}", v);
      together(32, "an asynchronous product");
      break;
    case StmtKind::SetRegisters:
      check(s.number >= 24 && s.number <= 256 && s.number % 8 == 0, "{} registers", s.number);
      together(32, "a change of registers");
      break;
    case StmtKind::GridBarrier:
      check(threads_ > 0 && !in_core_, "a barrier of the grid that not all blocks reach");
      check(p_.launch.resident, "a barrier of the grid in a program whose blocks may wait for it");
      together(threads_, "a barrier of the grid");
      counter(s.inst, threads_);
      break;
    case StmtKind::Post:
      posts(s.inst.buffer);
      expr(s.inst.expr, 1);
      break;
    case StmtKind::AwaitPosts:
      counter(s.inst, threads_);
      expr(s.end, 1);
      check(level_of(s.end) == threads_, "the posts that are awaited differ by thread");
      check(p_.launch.resident,
            "a wait for posts in a program whose blocks may wait for each other to end");
      together(threads_, "a wait for posts");
      block(s.body);
      break;
    case StmtKind::ClearPosts:
      posts(s.inst.buffer);
      posts(s.inst.source);
      check(s.number >= 0 && s.number <= buffer(s.inst.buffer).elements.value(),
            "{} posts of counter {}", s.number, buffer(s.inst.buffer).name);
      check(!in_core_, "posts that not all blocks clear");
      together(threads_, "the clearing of posts");
      break;
    case StmtKind::TileZero:
    case StmtKind::TileLoad:
    case StmtKind::TileMultiply:
    case StmtKind::TileStore:
      tile(s);
      break;
    case StmtKind::Last:
      check(threads_ > 0, "blocks on a CPU");
      if (s.number != 0) {
        check(s.number > 0 && s.number < 16 && s.target >= 32 && s.target % 32 == 0 &&
                  s.target <= threads_,
              "barrier {} of {} threads", s.number, s.target);
        together(32, "the choice of a last block");
      } else {
        together(threads_, "the choice of a last block");
      }
      counter(s.inst, s.number != 0 ? level_ : threads_);
      expr(s.end, 1);
      check(level_of(s.end) >= (s.number != 0 ? level_ : threads_),
            "the number of arrivals differs by thread");
      block(s.body);
      break;
    }
  }

  const KernelProgram& p_;
  std::vector<bool> visible_, set_;
  std::vector<Expr> loops_;
  std::set<int> numbers_;
  bool in_core_ = false; ///< or in a grid loop
  int threads_;
  int level_; ///< of the way to the current statement
  std::vector<int> value_level_;
  std::map<int, int> loop_level_;
};

} // namespace

void verify(const KernelProgram& program) {
  Verifier(program).run();
}

} // namespace egret::kernel

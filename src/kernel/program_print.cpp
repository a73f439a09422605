#include "kernel/expr_text.h"
#include "kernel/program.h"

#include "support/fail.h"

namespace egret::kernel {

namespace {

const char* name_of(Monoid m) {
  switch (m) {
  case Monoid::Sum:
    return "sum";
  case Monoid::Max:
    return "max";
  case Monoid::Prod:
    return "prod";
  case Monoid::ArgMax:
    return "argmax";
  }
  return "?";
}

const char* name_of(Space s) {
  switch (s) {
  case Space::Argument:
    return "argument";
  case Space::Workspace:
    return "workspace";
  case Space::Worker:
    return "worker";
  case Space::Shared:
    return "shared";
  case Space::Counter:
    return "counter";
  }
  return "?";
}

const char* name_of(CachePolicy p) {
  switch (p) {
  case CachePolicy::Default:
    return "";
  case CachePolicy::Streaming:
    return " streaming";
  case CachePolicy::EvictFirst:
    return " evict_first";
  case CachePolicy::EvictLast:
    return " evict_last";
  }
  return "?";
}

const char* text_of(Bind b) {
  switch (b) {
  case Bind::Serial:
    return "";
  case Bind::Unroll:
    return ", unrolled";
  case Bind::Vector:
    return ", vector";
  case Bind::Core:
    return ", over cores";
  case Bind::Grid:
    return ", over the grid";
  case Bind::Cluster:
    return ", over the cluster";
  case Bind::Warpgroup:
    return ", over warp groups";
  case Bind::Warp:
    return ", over warps";
  case Bind::Lane:
    return ", over lanes";
  case Bind::Matrix:
    return ", matrix";
  }
  return "?";
}

class Printer {
public:
  explicit Printer(const KernelProgram& program) : p_(program) {}

  std::string run() {
    out_ = fmt::format("kernel {}", p_.name);
    if (!p_.dims.empty()) {
      out_ += " dims";
      for (const Expr& d : p_.dims)
        out_ += " " + d.str();
    }
    for (std::size_t i = 0; i < p_.scalars.size(); ++i)
      out_ += fmt::format("{} s{}: {}", i ? "," : " scalars", i, egret::name_of(p_.scalars[i]));
    const Launch& l = p_.launch;
    if (l.threads == 0)
      out_ += fmt::format(", at most {} workers\n", text(l.workers));
    else
      out_ += fmt::format(
          ", {} blocks{} of {} threads{}{}\n", text(l.workers), l.resident ? " at most" : "",
          l.threads,
          l.blocks_per_core ? fmt::format(", {} on a multiprocessor", l.blocks_per_core) : "",
          l.least_shared ? fmt::format(", {} bytes of shared memory at the least", l.least_shared)
                         : "");
    for (std::size_t i = 0; i < p_.buffers.size(); ++i) {
      const Buffer& b = p_.buffers[i];
      out_ += fmt::format("  {} {}: {}[{}]{}{}\n", name_of(b.space), buffer(int(i)),
                          egret::name_of(b.dtype), text(b.elements), b.read ? " read" : "",
                          b.written ? " written" : "");
    }
    for (std::size_t i = 0; i < p_.tensor_maps.size(); ++i)
      tensor_map(int(i));
    if (p_.product)
      product(*p_.product);
    block(p_.body, 1);
    return out_;
  }

private:
  void tensor_map(int number) {
    const TensorMap& m = p_.tensor_maps[std::size_t(number)];
    out_ += fmt::format("  map {} of {} from {}:", number, buffer(m.buffer), text(m.offset));
    for (std::size_t i = 0; i < m.box.size(); ++i)
      out_ += fmt::format(" {} of {} by {}", m.box[i], text(m.extents[i]), text(m.strides[i]));
    out_ += "\n";
  }

  void product(const LibraryProduct& p) {
    const auto matrix = [&](const LibraryProduct::Matrix& m, char row, char column) {
      std::string at = fmt::format("{}*{} + {}*{}", m.row, row, m.column, column);
      if (p.batches > 1)
        at = fmt::format("{}*b + ", m.batch) + at;
      return fmt::format("{}[{}{}]", buffer(m.buffer),
                         m.offset ? fmt::format("{} + ", m.offset) : "", at);
    };
    out_ += fmt::format("  library's product, way {}: b < {}, i < {}, j < {}, k < {}\n", p.rank,
                        p.batches, p.rows, p.columns, p.depth);
    out_ +=
        fmt::format("  {} = {}(sum of {} * {}{})\n", matrix(p.result, 'i', 'j'),
                    p.activation == LibraryProduct::Activation::None ? "" : name_of(p.activation),
                    matrix(p.left, 'i', 'k'), matrix(p.right, 'j', 'k'),
                    p.bias < 0 ? "" : fmt::format(" + {}[{} + j]", buffer(p.bias), p.bias_offset));
  }

  std::string text(const Expr& e) const {
    return kernel::text_of(e, [](const Expr& v) {
      if (v.is_axis())
        return fmt::format("i{}", v.axis_number());
      if (lanes_of(v))
        return std::string("lane");
      if (threads_of(v))
        return std::string("thread");
      if (auto id = value_of(v))
        return fmt::format("v{}", *id);
      return v.node().name;
    });
  }

  std::string buffer(int b) const {
    const std::string& name = p_.buffers.at(b).name;
    return name.empty() ? fmt::format("b{}", b) : name;
  }

  std::string place(int b, const Expr& e) const {
    return fmt::format("{}[{}]", buffer(b), text(e));
  }

  static std::string type(const Type& t) {
    return t.lanes == 1 ? egret::name_of(t.dtype)
                        : fmt::format("{}x{}", egret::name_of(t.dtype), t.lanes);
  }

  std::string mask(const std::vector<Guard>& guards, const char* word) const {
    std::string out;
    for (const Guard& g : guards)
      out += fmt::format(" {} {} <= {} < {}", out.empty() ? word : "and", text(g.lo), text(g.value),
                         text(g.hi));
    return out;
  }

  std::string args(const std::vector<ValueId>& values) const {
    std::string out;
    for (ValueId v : values)
      out += fmt::format("{} v{}", out.empty() ? "" : ",", v);
    return out;
  }

  std::string inst(const Inst& i) const {
    switch (i.kind) {
    case InstKind::Constant:
      return i.constant.str();
    case InstKind::Scalar:
      return fmt::format("s{}", i.number);
    case InstKind::Index:
      return "index " + text(i.expr);
    case InstKind::Apply:
      return (i.quick || i.number != 0 ? "quick " : "") + std::string(info_of(i.op).name) +
             args(i.args);
    case InstKind::Fma:
      return "fma" + args(i.args);
    case InstKind::Load:
      return fmt::format("load{} {}[{}]{}", name_of(i.policy), buffer(i.buffer), text(i.expr),
                         mask(i.mask, "where"));
    case InstKind::ReadVar:
      return fmt::format("r{}", i.number);
    case InstKind::Splat:
      return "splat" + args(i.args);
    case InstKind::Extract:
      return fmt::format("lane {} of{}", i.number, args(i.args));
    case InstKind::ReduceLanes:
      return fmt::format("{} of the lanes of{}", name_of(i.monoid), args(i.args));
    case InstKind::Shuffle:
      return fmt::format("shuffle{} by [{}]", args(i.args), fmt::join(i.lanes_from, " "));
    case InstKind::LoadMatrix:
      return fmt::format("matrices {} {}[{}]{}", i.number, buffer(i.buffer), text(i.expr),
                         i.transposed ? " transposed" : "");
    case InstKind::Mma:
      return fmt::format("mma {}{}", egret::name_of(i.element), args(i.args));
    case InstKind::Test:
      return "test" + mask(i.mask, "");
    case InstKind::ScanThreads:
      return fmt::format("{} of the threads before, of {}, of{}", name_of(i.monoid), i.number,
                         args(i.args));
    case InstKind::ReduceThreads:
      return fmt::format("{} over {} threads of{}", name_of(i.monoid), i.number, args(i.args));
    }
    return "?";
  }

  void block(const Block& statements, int depth) {
    for (const Stmt& s : statements)
      statement(s, depth);
  }

  void statement(const Stmt& s, int depth) {
    std::string in(std::size_t(depth) * 2, ' ');
    switch (s.kind) {
    case StmtKind::Let:
      out_ += fmt::format("{}v{}: {} = {}\n", in, s.target, type(s.inst.type), inst(s.inst));
      break;
    case StmtKind::Set:
      out_ += fmt::format("{}r{} ={}\n", in, s.target, args(s.args));
      break;
    case StmtKind::Store:
      out_ +=
          fmt::format("{}store{} {}[{}] ={}{}\n", in, name_of(s.inst.policy), buffer(s.inst.buffer),
                      text(s.inst.expr), args(s.args), mask(s.inst.mask, "where"));
      break;
    case StmtKind::For:
      out_ += fmt::format("{}for i{} from {} to {}", in, s.number, text(s.begin), text(s.end));
      if (s.step != Expr(1))
        out_ += " step " + text(s.step);
      out_ += text_of(s.bind);
      if (s.order == WorkOrder::Drawn)
        out_ += fmt::format(", drawn from {}[{}]", buffer(s.inst.buffer), text(s.inst.expr));
      if (s.unroll > 1)
        out_ += fmt::format(", {} copies", s.unroll);
      out_ += "\n";
      block(s.body, depth + 1);
      break;
    case StmtKind::If:
      out_ += fmt::format("{}if{}\n", in, mask(s.inst.mask, ""));
      block(s.body, depth + 1);
      if (!s.otherwise.empty()) {
        out_ += in + "else\n";
        block(s.otherwise, depth + 1);
      }
      break;
    case StmtKind::Barrier:
      out_ += in + "barrier\n";
      break;
    case StmtKind::GridBarrier:
      out_ += fmt::format("{}barrier of the grid by {}[{}]\n", in, buffer(s.inst.buffer),
                          text(s.inst.expr));
      break;
    case StmtKind::Last:
      out_ += fmt::format(
          "{}last of {} by {}[{}]{}\n", in, text(s.end), buffer(s.inst.buffer), text(s.inst.expr),
          s.number == 0 ? "" : fmt::format(", {} threads at barrier {}", s.target, s.number));
      block(s.body, depth + 1);
      break;
    case StmtKind::Post:
      out_ += fmt::format("{}post {}[{}]\n", in, buffer(s.inst.buffer), text(s.inst.expr));
      break;
    case StmtKind::AwaitPosts:
      out_ += fmt::format("{}await posts of {} from {} to {}\n", in, buffer(s.inst.buffer),
                          text(s.inst.expr), text(s.end));
      block(s.body, depth + 1);
      break;
    case StmtKind::ClearPosts:
      out_ += fmt::format("{}clear {} posts of {}\n", in, s.number, buffer(s.inst.buffer));
      break;
    case StmtKind::WarpBarrier:
      out_ += in + "barrier of the warp\n";
      break;
    case StmtKind::CopyAsync:
      out_ += fmt::format("{}copy async {} of {}[{}] to {}[{}]{}\n", in, s.inst.type.lanes,
                          buffer(s.inst.source), text(s.inst.source_expr), buffer(s.inst.buffer),
                          text(s.inst.expr), mask(s.inst.mask, "where"));
      break;
    case StmtKind::InitSignal:
      out_ += fmt::format("{}signal {} has {} arrivals\n", in, place(s.inst.buffer, s.inst.expr),
                          s.number);
      break;
    case StmtKind::Arrive:
      out_ += fmt::format("{}arrive at {}", in, place(s.inst.buffer, s.inst.expr));
      if (s.number > 0)
        out_ += fmt::format(" before {} bytes", s.number);
      out_ += "\n";
      break;
    case StmtKind::Await:
      out_ += fmt::format("{}await {} in phase{}\n", in, place(s.inst.buffer, s.inst.expr),
                          args(s.args));
      break;
    case StmtKind::TensorCopy: {
      out_ += fmt::format("{}copy box of map {} at [", in, s.number);
      for (std::size_t i = 0; i < s.inst.at.size(); ++i)
        out_ += (i ? ", " : "") + text(s.inst.at[i]);
      out_ += fmt::format("] to {}, signal {}\n", place(s.inst.buffer, s.inst.expr),
                          place(s.inst.source, s.inst.source_expr));
      break;
    }
    case StmtKind::FenceProducts:
      out_ += in + "fence products\n";
      break;
    case StmtKind::MultiplyAsync:
      out_ += fmt::format(
          "{}multiply async {}{} by {}{} into r{} to r{}{}\n", in,
          s.args.empty() ? place(s.inst.buffer, s.inst.expr) : fmt::format("v{}", s.args[0]),
          s.inst.transposed ? " transposed" : "", place(s.inst.source, s.inst.source_expr),
          s.inst.source_transposed ? " transposed" : "", s.variables.front(), s.variables.back(),
          mask(s.inst.mask, "added where"));
      break;
    case StmtKind::CommitProducts:
      out_ += in + "commit products\n";
      break;
    case StmtKind::WaitProducts:
      out_ += fmt::format("{}wait until {} groups of products are under way\n", in, s.number);
      break;
    case StmtKind::SetRegisters:
      out_ += fmt::format("{}{} registers to {}\n", in, s.target ? "raise" : "lower", s.number);
      break;
    case StmtKind::CommitCopies:
      out_ += in + "commit copies\n";
      break;
    case StmtKind::WaitCopies:
      out_ += fmt::format("{}wait until {} groups of copies are under way\n", in, s.number);
      break;
    case StmtKind::TileZero:
      out_ += fmt::format("{}t{} = 0\n", in, s.target);
      break;
    case StmtKind::TileLoad:
      out_ += fmt::format("{}t{} = rows of {} by {}\n", in, s.target,
                          place(s.inst.buffer, s.inst.expr), text(s.inst.source_expr));
      break;
    case StmtKind::TileMultiply:
      out_ += fmt::format("{}t{} += t{} * t{} in {}\n", in, s.target, s.number, s.inst.number,
                          egret::name_of(s.inst.element));
      break;
    case StmtKind::TileStore:
      out_ += fmt::format("{}rows of {} by {} = t{}\n", in, place(s.inst.buffer, s.inst.expr),
                          text(s.inst.source_expr), s.target);
      break;
    case StmtKind::Prefetch:
      out_ += fmt::format("{}prefetch {}[{}]\n", in, buffer(s.inst.buffer), text(s.inst.expr));
      break;
    }
  }

  const KernelProgram& p_;
  std::string out_;
};

} // namespace

std::string print(const KernelProgram& program) {
  return Printer(program).run();
}

} // namespace egret::kernel

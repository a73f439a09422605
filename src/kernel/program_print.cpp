#include "kernel/expr_text.h"
#include "kernel/program.h"

#include "support/fail.h"

namespace egret::kernel {

namespace {

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
  case Space::Problem:
    return "problem's";
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

const char* word_of(Bind b) {
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
      out_ += fmt::format("  {} {}: {}[{}]{}{}{}\n", name_of(b.space), buffer(int(i)),
                          egret::name_of(b.dtype), text(b.elements), b.read ? " read" : "",
                          b.written ? " written" : "", b.settled ? " settled" : "");
    }
    for (std::size_t i = 0; i < p_.tensor_maps.size(); ++i)
      tensor_map(int(i));
    for (std::size_t i = 0; i < p_.groups.size(); ++i)
      group(int(i));
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

  void group(int number) {
    const ProblemGroup& g = p_.groups[std::size_t(number)];
    out_ += fmt::format("  group {} of {} problems: begin {}\n", number, g.problems(),
                        fmt::join(g.begin, " "));
    for (std::size_t i = 0; i < g.sizes.size(); ++i)
      out_ += fmt::format("    {}: {}\n", text(g.sizes[i]), fmt::join(g.values[i], " "));
    for (std::size_t i = 0; i < g.buffers.size(); ++i)
      out_ += fmt::format("    {}: {}\n", buffer(g.buffers[i]), fmt::join(g.arguments[i], " "));
    for (std::size_t i = 0; i < g.scalars.size(); ++i)
      out_ += fmt::format("    problem's s{}: {}\n", i, fmt::join(g.scalars[i], " "));
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

  std::string place(const Address& at) const {
    return fmt::format("{}[{}]", buffer(at.buffer), text(at.index));
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

  template <class L>
  static std::string args(const L& values) {
    std::string out;
    for (ValueId v : values)
      out += fmt::format("{} v{}", out.empty() ? "" : ",", v);
    return out;
  }

  std::string inst(const Inst& i) const {
    return std::visit(
        overloaded{
            [](const inst::Constant& c) { return c.value.str(); },
            [](const inst::Argument& a) {
              return a.number < 0 ? fmt::format("problem's s{}", -1 - a.number)
                                  : fmt::format("s{}", a.number);
            },
            [&](const inst::Index& x) { return "index " + text(x.expr); },
            [](const inst::Apply& a) {
              return (a.approximate ? "approximate " : "") + std::string(info_of(a.op).name) +
                     args(a.args);
            },
            [](const inst::Fma& f) { return "fma" + args(f.args); },
            [&](const inst::Load& l) {
              return fmt::format("load{} {}{}", name_of(l.policy), place(l.from),
                                 mask(l.mask, "where"));
            },
            [](const inst::Read& r) { return fmt::format("r{}", r.variable); },
            [](const inst::Splat& x) { return fmt::format("splat v{}", x.value); },
            [](const inst::Extract& x) { return fmt::format("lane {} of v{}", x.lane, x.value); },
            [](const inst::ReduceLanes& r) {
              return fmt::format("{} of the lanes of v{}", monoid_name(r.monoid), r.value);
            },
            [](const inst::Shuffle& x) {
              return fmt::format("shuffle{} by [{}]", args(x.args), fmt::join(x.lanes_from, " "));
            },
            [&](const inst::Test& t) { return "test" + mask(t.mask, ""); },
            [&](const Intrinsic& use) { return intrinsic(use); }},
        i.op);
  }

  static std::string number(const NumberOperand& operand, std::int64_t n) {
    switch (operand.kind) {
    case NumberOperand::Kind::Count:
      return fmt::format("{}={}", operand.name, n);
    case NumberOperand::Kind::Flag:
      return n != 0 ? std::string(operand.name) : std::string();
    case NumberOperand::Kind::DType:
      return egret::name_of(static_cast<DType>(n));
    case NumberOperand::Kind::Monoid:
      return monoid_name(static_cast<Monoid>(n));
    }
    return "?";
  }

  /// "name(operand=..., ...) where ...", operands as the intrinsic's row has them.
  std::string intrinsic(const Intrinsic& use) const {
    const IntrinsicInfo& info = info_of(use.id);
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < use.memory.size(); ++i)
      parts.push_back(fmt::format("{}={}", info.memory[i].name, place(use.memory[i])));
    for (std::size_t i = 0; i < use.values.size(); ++i)
      parts.push_back(fmt::format("{}=v{}", info.values[i].name, use.values[i]));
    if (!use.variables.empty())
      parts.push_back(fmt::format("r{}..r{}", use.variables.front(), use.variables.back()));
    for (std::size_t i = 0; i < use.numbers.size(); ++i)
      if (std::string one = number(info.numbers[i], use.numbers[i]); !one.empty())
        parts.push_back(std::move(one));
    for (std::size_t i = 0; i < use.indices.size(); ++i)
      parts.push_back(
          fmt::format("{}={}", info.indices[info.any_indices ? 0 : i].name, text(use.indices[i])));
    return fmt::format("{}({}){}", info.name, fmt::join(parts, ", "), mask(use.mask, "where"));
  }

  void block(const Block& statements, int depth) {
    for (const Stmt& s : statements)
      statement(s, depth);
  }

  void statement(const Stmt& s, int depth) {
    const std::string in(std::size_t(depth) * 2, ' ');
    std::visit(
        overloaded{
            [&](const Let& x) {
              out_ +=
                  fmt::format("{}v{}: {} = {}\n", in, x.target, type(x.inst.type), inst(x.inst));
            },
            [&](const Assign& x) { out_ += fmt::format("{}r{} = v{}\n", in, x.variable, x.value); },
            [&](const Store& x) {
              out_ += fmt::format("{}store{} {} = v{}{}\n", in, name_of(x.policy), place(x.to),
                                  x.value, mask(x.mask, "where"));
            },
            [&](const For& x) { loop(x, in, depth); },
            [&](const If& x) {
              out_ += fmt::format("{}if{}\n", in, mask(x.condition, ""));
              block(x.body, depth + 1);
              if (!x.otherwise.empty()) {
                out_ += in + "else\n";
                block(x.otherwise, depth + 1);
              }
            },
            [&](const Barrier&) { out_ += in + "barrier\n"; },
            [&](const Intrinsic& x) { out_ += fmt::format("{}{}\n", in, intrinsic(x)); },
            [&](const Acquire& x) {
              out_ += fmt::format("{}behind {}\n", in, intrinsic(x.by));
              block(x.body, depth + 1);
            },
            [&](const InProblem& x) {
              out_ +=
                  fmt::format("{}problem of group {} with item {}\n", in, x.group, text(x.item));
              block(x.body, depth + 1);
            }},
        s.node);
  }

  void loop(const For& x, const std::string& in, int depth) {
    out_ += fmt::format("{}for i{} from {} to {}", in, x.number, text(x.begin), text(x.end));
    if (x.step != Expr(1))
      out_ += " step " + text(x.step);
    out_ += word_of(x.bind);
    if (x.queue)
      out_ += fmt::format(", from the queue {}", place(*x.queue));
    if (x.relay)
      out_ += fmt::format(", {} {}", x.relay->leads ? "leading by" : "following by",
                          place(x.relay->at));
    if (x.unroll > 1)
      out_ += fmt::format(", {} copies", x.unroll);
    if (x.keeps_invariants)
      out_ += ", keeps invariants";
    out_ += "\n";
    block(x.body, depth + 1);
  }

  const KernelProgram& p_;
  std::string out_;
};

} // namespace

std::string print(const KernelProgram& program) {
  return Printer(program).run();
}

} // namespace egret::kernel

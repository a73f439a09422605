// Every identity of simplify, one case each at the least: what fires, what comes out, and that the
// values stay to the last bit.
#include "backend/reference/reference.h"
#include "egret/passes.h"
#include "ir/passes/rules.h"
#include "support/random_graph.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>

#include <set>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;

/// A node as an expression: inputs by name, broadcast constants by value, movements with what they
/// do.
std::string shown(const Graph& g, NodeId id) {
  const ir::Node& n = g[id];
  if (n.op == Op::Input)
    return n.attrs.name;
  if (auto value = ir::known_value(g, id))
    return value->str();
  std::vector<std::string> parts;
  for (NodeId in : n.inputs)
    parts.push_back(shown(g, in));
  std::string result = fmt::format("{}({})", info_of(n.op).name, fmt::join(parts, ", "));
  if (n.op == Op::Reshape || n.op == Op::Expand)
    result += to_string(n.shape);
  else if (n.op == Op::Cast || n.op == Op::Bitcast)
    result += fmt::format(":{}", name_of(n.dtype));
  else if (n.op == Op::Pad)
    result += to_string(n.attrs.before) + to_string(n.attrs.after);
  else if (n.op == Op::Shrink)
    result += to_string(n.attrs.before) + to_string(n.attrs.shape);
  else if (!n.attrs.axes.empty())
    result += fmt::format("[{}]", fmt::join(n.attrs.axes, ","));
  return result;
}

/// Short names for building: x and y are inputs of one dtype and shape, number(v) a broadcast
/// constant like them.
struct Maker {
  Graph& g;
  DType dtype;
  Shape shape;
  NodeId x, y;

  Maker(Graph& graph, DType type, Shape dims) : g(graph), dtype(type), shape(std::move(dims)) {
    x = g.input("x", dtype, shape);
    y = g.input("y", dtype, shape);
  }
  NodeId number(double v) { return g.broadcast(g.constant(dtype, v), shape); }
  NodeId op(Op o, NodeId a, NodeId b) { return g.binary(o, a, b); }
  NodeId op(Op o, NodeId a) { return g.unary(o, a); }
  /// A movement as it stands, also one that the builders would leave out.
  NodeId raw(Op o, NodeId a, ir::Attrs attrs) { return g.add(o, {&a, 1}, std::move(attrs)); }
};

struct Case {
  std::string_view rule; ///< empty: nothing must fire
  DType dtype;
  Shape shape;
  NodeId (*make)(Maker&);
  std::string after;
};

const Shape kRow{3}, kBox{2, 3};
constexpr auto F = DType::F32;
constexpr auto I = DType::I32;
constexpr auto B = DType::Bool;

const Case kCases[] = {
    {"x * 1 = x", F, kRow, [](Maker& m) { return m.op(Op::Mul, m.number(1), m.x); }, "x"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Mul, m.x, m.number(0)); }, "mul(x, 0)"},
    {"x * 0 = 0 (integers)", I, kRow, [](Maker& m) { return m.op(Op::Mul, m.number(0), m.x); }, "0"},
    {"(x * c) * d = x * (c * d) (integers; floats where c or d is 1 or -1)", F, kRow,
     [](Maker& m) { return m.op(Op::Mul, m.op(Op::Mul, m.x, m.number(-1)), m.number(-1)); }, "x"},
    {"(x * c) * d = x * (c * d) (integers; floats where c or d is 1 or -1)", F, kRow,
     [](Maker& m) { return m.op(Op::Mul, m.number(-1), m.op(Op::Mul, m.number(0.3), m.x)); },
     "mul(x, -0.3)"},
    {"", F, kRow,
     [](Maker& m) { return m.op(Op::Mul, m.op(Op::Mul, m.x, m.number(3)), m.number(0.3)); },
     "mul(mul(x, 3), 0.3)"},
    {"(x * c) * d = x * (c * d) (integers; floats where c or d is 1 or -1)", I, kRow,
     [](Maker& m) { return m.op(Op::Mul, m.op(Op::Mul, m.x, m.number(3)), m.number(5)); },
     "mul(x, 15)"},
    {"x + 0 = x (integers; floats: x + -0 = x)", F, kRow,
     [](Maker& m) { return m.op(Op::Add, m.number(-0.0), m.x); }, "x"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Add, m.x, m.number(0)); }, "add(x, 0)"},
    {"x + 0 = x (integers; floats: x + -0 = x)", I, kRow,
     [](Maker& m) { return m.op(Op::Add, m.x, m.number(0)); }, "x"},
    {"(x + c) + d = x + (c + d) (integers)", DType::U8, kRow,
     [](Maker& m) { return m.op(Op::Add, m.op(Op::Add, m.x, m.number(200)), m.number(100)); },
     "add(x, 44)"},
    {"", F, kRow,
     [](Maker& m) { return m.op(Op::Add, m.op(Op::Add, m.x, m.number(2)), m.number(1)); },
     "add(add(x, 2), 1)"},
    {"f(x) - f(x) = c - c with c = x within -1 .. 1 (f one of erf, tanh)", F, kRow,
     [](Maker& m) {
       const NodeId f = m.op(Op::Erf, m.x);
       return m.op(Op::Add, f, m.op(Op::Mul, f, m.number(-1)));
     },
     "add(max(mul(max(x, -1), -1), -1), mul(max(mul(max(x, -1), -1), -1), -1))"},
    {"f(x) - f(x) = c - c with c = x within -1 .. 1 (f one of erf, tanh)", F, kRow,
     [](Maker& m) {
       const NodeId f = m.op(Op::Tanh, m.x);
       return m.op(Op::Add, m.op(Op::Mul, m.number(-1), f), f);
     },
     "add(max(mul(max(x, -1), -1), -1), mul(max(mul(max(x, -1), -1), -1), -1))"},
    {"", F, kRow, // NaN for infinities
     [](Maker& m) {
       const NodeId f = m.op(Op::Sin, m.x);
       return m.op(Op::Add, f, m.op(Op::Mul, f, m.number(-1)));
     },
     "add(sin(x), mul(sin(x), -1))"},
    {"x / c = x * (1/c) (c a power of two with a reciprocal)", F, kRow,
     [](Maker& m) { return m.op(Op::Div, m.x, m.number(-8)); }, "mul(x, -0.125)"},
    {"x / c = x * (1/c) (c a power of two with a reciprocal)", F, kRow,
     [](Maker& m) { return m.op(Op::Div, m.x, m.number(1)); }, "x"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Div, m.x, m.number(3)); }, "div(x, 3)"},
    {"", DType::F16, kRow, [](Maker& m) { return m.op(Op::Div, m.x, m.number(0x1p-24)); },
     "div(x, 6e-08)"},
    {"x // 1 = x", I, kRow, [](Maker& m) { return m.op(Op::IDiv, m.x, m.number(1)); }, "x"},
    {"x mod 1 = 0 (integers)", I, kRow, [](Maker& m) { return m.op(Op::Mod, m.x, m.number(1)); },
     "0"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Mod, m.x, m.number(1)); }, "mod(x, 1)"},
    {"max(x, x) = x", F, kRow, [](Maker& m) { return m.op(Op::Max, m.x, m.x); }, "x"},
    {"max(x, lowest) = x", F, kRow,
     [](Maker& m) { return m.op(Op::Max, m.number(-INFINITY), m.x); }, "x"},
    {"max(x, lowest) = x", DType::U32, kRow,
     [](Maker& m) { return m.op(Op::Max, m.x, m.number(0)); }, "x"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Max, m.x, m.number(0)); }, "max(x, 0)"},
    {"max(max(x, c), d) = max(x, max(c, d))", F, kRow,
     [](Maker& m) { return m.op(Op::Max, m.op(Op::Max, m.number(1), m.x), m.number(2)); },
     "max(x, 2)"},
    {"pow(x, 0) = 1", F, kRow, [](Maker& m) { return m.op(Op::Pow, m.x, m.number(0)); }, "1"},
    {"pow(x, 1) = x", F, kRow, [](Maker& m) { return m.op(Op::Pow, m.x, m.number(1)); }, "x"},
    {"pow(x, 2) = x * x", F, kRow, [](Maker& m) { return m.op(Op::Pow, m.x, m.number(2)); },
     "mul(x, x)"},
    {"pow(x, -1) = recip(x)", F, kRow, [](Maker& m) { return m.op(Op::Pow, m.x, m.number(-1)); },
     "recip(x)"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Pow, m.x, m.number(0.5)); }, "pow(x, 0.5)"},
    {"floor of floor or trunc = the inner one", F, kRow,
     [](Maker& m) { return m.op(Op::Floor, m.op(Op::Trunc, m.x)); }, "trunc(x)"},
    {"trunc of floor or trunc = the inner one", F, kRow,
     [](Maker& m) { return m.op(Op::Trunc, m.op(Op::Floor, m.x)); }, "floor(x)"},

    {"x & x = x", I, kRow, [](Maker& m) { return m.op(Op::And, m.x, m.x); }, "x"},
    {"x & 0 = 0", I, kRow, [](Maker& m) { return m.op(Op::And, m.x, m.number(0)); }, "0"},
    {"x & ones = x", I, kRow, [](Maker& m) { return m.op(Op::And, m.number(-1), m.x); }, "x"},
    {"x & ones = x", B, kRow, [](Maker& m) { return m.op(Op::And, m.x, m.number(1)); }, "x"},
    {"x | x = x", I, kRow, [](Maker& m) { return m.op(Op::Or, m.x, m.x); }, "x"},
    {"x | 0 = x", I, kRow, [](Maker& m) { return m.op(Op::Or, m.x, m.number(0)); }, "x"},
    {"x | ones = ones", I, kRow, [](Maker& m) { return m.op(Op::Or, m.x, m.number(-1)); }, "-1"},
    {"x ^ x = 0", I, kRow, [](Maker& m) { return m.op(Op::Xor, m.x, m.x); }, "0"},
    {"x ^ 0 = x", I, kRow, [](Maker& m) { return m.op(Op::Xor, m.x, m.number(0)); }, "x"},
    {"x ^ (x ^ y) = y", I, kRow,
     [](Maker& m) { return m.op(Op::Xor, m.op(Op::Xor, m.y, m.x), m.x); }, "y"},
    {"x ^ (x ^ y) = y", B, kRow,
     [](Maker& m) { return m.op(Op::Xor, m.number(1), m.op(Op::Xor, m.x, m.number(1))); }, "x"},
    {"x << 0 = x", I, kRow, [](Maker& m) { return m.op(Op::Shl, m.x, m.number(0)); }, "x"},
    {"x >> 0 = x", I, kRow, [](Maker& m) { return m.op(Op::Shr, m.x, m.number(0)); }, "x"},
    {"x < x = false", F, kRow, [](Maker& m) { return m.op(Op::Lt, m.x, m.x); }, "false"},
    {"x == x = true (not floats)", I, kRow, [](Maker& m) { return m.op(Op::Eq, m.x, m.x); },
     "true"},
    {"", F, kRow, [](Maker& m) { return m.op(Op::Eq, m.x, m.x); }, "eq(x, x)"},
    {"(b == true) = b, (b == false) = !b", B, kRow,
     [](Maker& m) { return m.op(Op::Eq, m.x, m.number(1)); }, "x"},
    {"(b == true) = b, (b == false) = !b", B, kRow,
     [](Maker& m) { return m.op(Op::Eq, m.x, m.number(0)); }, "xor(x, true)"},
    {"select(true, a, b) = a, select(false, a, b) = b", B, kRow,
     [](Maker& m) { return m.g.select(m.number(0), m.x, m.y); }, "y"},
    {"select(c, a, a) = a", B, kRow, [](Maker& m) { return m.g.select(m.x, m.y, m.y); }, "y"},
    {"select(c, true, false) = c, select(c, false, true) = !c", B, kRow,
     [](Maker& m) { return m.g.select(m.x, m.number(1), m.number(0)); }, "x"},
    {"select(c, true, false) = c, select(c, false, true) = !c", B, kRow,
     [](Maker& m) { return m.g.select(m.x, m.number(0), m.number(1)); }, "xor(x, true)"},
    {"select(!c, a, b) = select(c, b, a)", B, kRow,
     [](Maker& m) {
       return m.g.select(m.op(Op::Xor, m.x, m.number(1)), m.y, m.op(Op::And, m.x, m.y));
     },
     "select(x, and(x, y), y)"},

    {"a cast to the same dtype vanishes", F, kRow,
     [](Maker& m) { return m.raw(Op::Cast, m.x, {.dtype = F}); }, "x"},
    {"cast(cast(x)) = cast(x) where the inner one loses nothing", DType::F16, kRow,
     [](Maker& m) { return m.g.cast(m.g.cast(m.x, F), DType::F16); }, "x"},
    {"cast(cast(x)) = cast(x) where the inner one loses nothing", I, kRow,
     [](Maker& m) { return m.g.cast(m.g.cast(m.x, DType::F64), F); }, "cast(x):f32"},
    {"", I, kRow, [](Maker& m) { return m.g.cast(m.g.cast(m.x, F), I); },
     "cast(cast(x):f32):i32"},
    {"", DType::I8, kRow, [](Maker& m) { return m.g.cast(m.g.cast(m.x, F), DType::U8); },
     "cast(cast(x):f32):u8"},
    {"cast(cast(x)) = cast(x) where the inner one loses nothing", DType::I8, kRow,
     [](Maker& m) { return m.g.cast(m.g.cast(m.x, DType::I64), DType::U8); }, "cast(x):u8"},
    {"a bitcast to the same dtype vanishes", F, kRow,
     [](Maker& m) { return m.raw(Op::Bitcast, m.x, {.dtype = F}); }, "x"},
    {"bitcast(bitcast(x)) = bitcast(x) (not through bool)", F, kRow,
     [](Maker& m) { return m.g.bitcast(m.g.bitcast(m.x, I), DType::U32); }, "bitcast(x):u32"},
    {"", DType::U8, kRow, [](Maker& m) { return m.g.bitcast(m.g.bitcast(m.x, B), DType::U8); },
     "bitcast(bitcast(x):bool):u8"},
    {"stop_gradient(stop_gradient(x)) = stop_gradient(x)", F, kRow,
     [](Maker& m) { return m.op(Op::StopGradient, m.op(Op::StopGradient, m.x)); },
     "stop_gradient(x)"},

    {"sum over dims of size 1 = reshape (integers)", I, {2, 1},
     [](Maker& m) { return m.g.reduce(Op::ReduceSum, m.x, {0, 1}); }, "sum(reshape(x)[2])[0]"},
    {"", F, {2, 1}, [](Maker& m) { return m.g.reduce(Op::ReduceSum, m.x, {1}); }, "sum(x)[1]"},
    {"amax over dims of size 1 = reshape", F, {2, 1},
     [](Maker& m) { return m.g.reduce(Op::ReduceMax, m.x, {1}); }, "reshape(x)[2]"},
    {"prod over dims of size 1 = reshape", F, {1, 3, 1},
     [](Maker& m) { return m.g.reduce(Op::ReduceProd, m.x, {0, 1}); },
     "prod(reshape(x)[3,1])[0]"},
    {"argmax over a dim of size 1 = 0", F, {2, 1},
     [](Maker& m) { return m.g.reduce(Op::ReduceArgMax, m.x, {1}); }, "0"},
    {"sum of sum = one sum (integers)", I, {2, 3, 4},
     [](Maker& m) { return m.g.reduce(Op::ReduceSum, m.g.reduce(Op::ReduceSum, m.x, {1}), {1}); },
     "sum(x)[1,2]"},
    {"", F, {2, 3, 4},
     [](Maker& m) { return m.g.reduce(Op::ReduceSum, m.g.reduce(Op::ReduceSum, m.x, {1}), {1}); },
     "sum(sum(x)[1])[1]"},
    {"amax of amax = one amax", F, {2, 3, 4},
     [](Maker& m) { return m.g.reduce(Op::ReduceMax, m.g.reduce(Op::ReduceMax, m.x, {0}), {1}); },
     "amax(x)[0,2]"},
    {"prod of prod = one prod (integers)", I, {2, 3, 4},
     [](Maker& m) { return m.g.reduce(Op::ReduceProd, m.g.reduce(Op::ReduceProd, m.x, {2}), {0}); },
     "prod(x)[0,2]"},
    {"cumsum along a dim of size 1 vanishes (integers)", I, {2, 1},
     [](Maker& m) { return m.g.scan(Op::ScanSum, m.x, 1); }, "x"},
    {"cummax along a dim of size 1 vanishes", F, {2, 1},
     [](Maker& m) { return m.g.scan(Op::ScanMax, m.x, 1); }, "x"},
    {"cumprod along a dim of size 1 vanishes", F, {2, 1},
     [](Maker& m) { return m.g.scan(Op::ScanProd, m.x, 1); }, "x"},
    {"gather(x, iota) = x", F, {2, 3}, [](Maker& m) { return m.g.gather(m.x, m.g.iota(3), 1); },
     "x"},
    {"", F, {2, 3}, [](Maker& m) { return m.g.gather(m.x, m.g.iota(4), 1); },
     "gather(x, iota())[1]"},

    {"a reshape to the same shape vanishes", F, kBox,
     [](Maker& m) { return m.raw(Op::Reshape, m.x, {.shape = {2, 3}}); }, "x"},
    {"an expand to the same shape vanishes", F, kBox,
     [](Maker& m) { return m.raw(Op::Expand, m.x, {.shape = {2, 3}}); }, "x"},
    {"a permute in order vanishes", F, kBox,
     [](Maker& m) { return m.raw(Op::Permute, m.x, {.axes = {0, 1}}); }, "x"},
    {"a pad by nothing vanishes", F, kBox,
     [](Maker& m) { return m.raw(Op::Pad, m.x, {.before = {0, 0}, .after = {0, 0}}); }, "x"},
    {"a shrink to everything vanishes", F, kBox,
     [](Maker& m) { return m.raw(Op::Shrink, m.x, {.shape = {2, 3}, .before = {0, 0}}); }, "x"},
    {"a flip along a dim of size 1 or an expanded one vanishes", F, {2, 1},
     [](Maker& m) { return m.g.flip(m.x, {0, 1}); }, "flip(x)[0]"},
    {"a flip along a dim of size 1 or an expanded one vanishes", F, {2, 1},
     [](Maker& m) { return m.g.flip(m.g.expand(m.x, {2, 3}), {1}); }, "expand(x)[2,3]"},
    {"reshape of reshape = one reshape", F, kBox,
     [](Maker& m) { return m.g.reshape(m.g.reshape(m.x, {6}), {3, 2}); }, "reshape(x)[3,2]"},
    {"reshape of reshape = one reshape", F, kBox,
     [](Maker& m) { return m.g.reshape(m.g.reshape(m.x, {6}), {2, 3}); }, "x"},
    {"permute of permute = one permute", F, {2, 3, 4},
     [](Maker& m) { return m.g.permute(m.g.permute(m.x, {2, 0, 1}), {0, 2, 1}); },
     "permute(x)[2,1,0]"},
    {"permute of permute = one permute", F, {2, 3, 4},
     [](Maker& m) { return m.g.permute(m.g.permute(m.x, {2, 0, 1}), {1, 2, 0}); }, "x"},
    {"expand of expand = one expand", F, {2, 1, 1},
     [](Maker& m) { return m.g.expand(m.g.expand(m.x, {2, 3, 1}), {2, 3, 4}); },
     "expand(x)[2,3,4]"},
    {"pad of pad with the same fill = one pad", F, kRow,
     [](Maker& m) {
       Scalar one = Scalar::of(F, 1.0);
       return m.g.pad(m.g.pad(m.x, {1}, {0}, one), {2}, {3}, one);
     },
     "pad(x)[3][3]"},
    {"", F, kRow,
     [](Maker& m) {
       return m.g.pad(m.g.pad(m.x, {1}, {0}, Scalar::of(F, 1.0)), {2}, {3}, Scalar::of(F, 2.0));
     },
     "pad(pad(x)[1][0])[2][3]"},
    {"shrink of shrink = one shrink", F, {8},
     [](Maker& m) { return m.g.shrink(m.g.shrink(m.x, {1}, {7}), {2}, {5}); }, "shrink(x)[3][6]"},
    {"flip of flip = one flip", F, {2, 3, 4},
     [](Maker& m) { return m.g.flip(m.g.flip(m.x, {0, 1}), {1, 2}); }, "flip(x)[0,2]"},
    {"flip of flip = one flip", F, {2, 3},
     [](Maker& m) { return m.g.flip(m.g.flip(m.x, {1}), {1}); }, "x"},
    {"shrink inside a pad = shrink of what was padded", F, {4},
     [](Maker& m) {
       return m.g.shrink(m.g.pad(m.x, {2}, {1}, Scalar::of(F, 0.0)), {3}, {6});
     },
     "shrink(x)[1][4]"},
    {"", F, {4},
     [](Maker& m) {
       return m.g.shrink(m.g.pad(m.x, {2}, {1}, Scalar::of(F, 0.0)), {1}, {6});
     },
     "shrink(pad(x)[2][1])[1][6]"},
    {"shrink of expand = expand of shrink", F, {4, 1},
     [](Maker& m) { return m.g.shrink(m.g.expand(m.x, {4, 5}), {1, 2}, {3, 4}); },
     "expand(shrink(x)[1,0][3,1])[2,2]"},
};

Notes fired(const Graph& g, Graph& after) {
  std::vector<PassReport> reports;
  after = passes::simplify()(g, &reports);
  return reports[0].notes;
}

TEST(Rules, EachDoesWhatItSays) {
  for (const Case& c : kCases) {
    Graph g, after;
    Maker m(g, c.dtype, c.shape);
    g.outputs = {c.make(m)};
    Notes notes = fired(g, after);
    EXPECT_EQ(shown(after, after.outputs[0]), c.after) << c.rule << "\n" << print(g);
    if (c.rule.empty())
      EXPECT_TRUE(notes.empty()) << c.after << ": " << fmt::format("{}", fmt::join(notes, "; "));
    else
      EXPECT_NE(fmt::format("{}", fmt::join(notes, ";")).find(c.rule), std::string::npos)
          << c.rule << " did not fire: " << fmt::format("{}", fmt::join(notes, "; "));
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      auto inputs = testing::random_inputs(g, seed);
      auto wanted = backend::reference::execute(g, inputs);
      auto got = backend::reference::execute(after, inputs);
      for (std::int64_t i = 0; i < wanted[0].size(); ++i)
        EXPECT_TRUE(backend::reference::same(wanted[0].dtype, wanted[0].at(i), got[0].at(i)))
            << c.rule << " changed element " << i;
    }
  }
}

TEST(Rules, EveryRuleHasACase) {
  std::set<std::string_view> tested;
  for (const Case& c : kCases)
    tested.insert(c.rule);
  for (auto table : {passes::arithmetic_rules(), passes::logic_rules(), passes::conversion_rules(),
                     passes::reduction_rules(), passes::movement_rules()})
    for (const passes::Rule& rule : table)
      EXPECT_TRUE(tested.contains(rule.name)) << rule.name;
}

} // namespace
} // namespace egret

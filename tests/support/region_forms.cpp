#include "support/region_forms.h"

#include "support/random_graph.h"

#include <functional>
#include <string>

namespace egret::testing {

namespace {

using ir::Graph;
using ir::NodeId;

NodeId scalar(Graph& g, double v, Shape shape, DType type = DType::F32) {
  return g.broadcast(g.constant(type, v), shape);
}

NodeId sub(Graph& g, NodeId a, NodeId b) {
  Shape s = g[a].shape;
  return g.binary(Op::Add, a, g.binary(Op::Mul, b, scalar(g, -1, s, g[b].dtype)));
}

/// The result of a reduction over the last axis, repeated along it.
NodeId along(Graph& g, NodeId reduced, Shape like) {
  Shape s = like;
  s.back() = 1;
  return g.expand(g.reshape(reduced, s), like);
}

NodeId softmax(Graph& g, NodeId x) {
  Shape s = g[x].shape;
  std::int64_t last = std::int64_t(s.size()) - 1;
  NodeId e = g.unary(Op::Exp, sub(g, x, along(g, g.reduce(Op::ReduceMax, x, {last}), s)));
  return g.binary(Op::Div, e, along(g, g.reduce(Op::ReduceSum, e, {last}), s));
}

NodeId layer_norm(Graph& g, NodeId x, NodeId weight) {
  Shape s = g[x].shape;
  std::int64_t n = s.back().value();
  NodeId mean = g.reduce(Op::ReduceSum, x, {1});
  mean = g.binary(Op::Mul, mean, scalar(g, 1.0 / double(n), {s[0]}));
  NodeId d = sub(g, x, along(g, mean, s));
  NodeId var = g.reduce(Op::ReduceSum, g.binary(Op::Mul, d, d), {1});
  var = g.binary(Op::Add, g.binary(Op::Mul, var, scalar(g, 1.0 / double(n), {s[0]})),
                 scalar(g, 1e-5, {s[0]}));
  NodeId r = g.unary(Op::Recip, g.unary(Op::Sqrt, var));
  return g.binary(Op::Mul, g.binary(Op::Mul, d, along(g, r, s)), g.broadcast(weight, s));
}

/// Concatenation along an axis: each part padded to the whole, chosen by the position.
NodeId join(Graph& g, const std::vector<NodeId>& parts, std::size_t axis) {
  const std::size_t rank = g[parts[0]].shape.size();
  Expr total = 0;
  for (NodeId part : parts)
    total = total + g[part].shape[axis];
  std::vector<NodeId> padded;
  std::vector<Expr> ends;
  Expr begin = 0;
  for (NodeId part : parts) {
    const Expr end = begin + g[part].shape[axis];
    std::vector<Expr> before(rank, Expr(0)), after(rank, Expr(0));
    before[axis] = begin;
    after[axis] = total - end;
    padded.push_back(g.pad(part, before, after, Scalar::of(DType::F32, 0.0)));
    ends.push_back(begin = end);
  }
  const Shape whole = g[padded[0]].shape;
  Shape line(rank, Expr(1));
  line[axis] = total;
  const NodeId position = g.expand(g.reshape(g.iota(total), line), whole);
  const std::function<NodeId(std::size_t, std::size_t)> choose = [&](std::size_t first,
                                                                     std::size_t end) {
    if (end - first == 1)
      return padded[first];
    const std::size_t half = (first + end) / 2;
    const NodeId bound = g.constant(Scalar::of(DType::I64, ends[half - 1].value()));
    const NodeId before = g.binary(Op::Lt, position, g.broadcast(bound, whole));
    return g.select(before, choose(first, half), choose(half, end));
  };
  return choose(0, padded.size());
}

/// Nine inputs of m rows or fewer, and n columns.
std::vector<NodeId> nine(Graph& g, std::int64_t m, std::int64_t n) {
  std::vector<NodeId> parts;
  for (int i = 0; i < 9; ++i)
    parts.push_back(g.input(std::string(1, char('a' + i)), DType::F32, {1 + (m + i) % m, n}));
  return parts;
}

const std::vector<std::pair<std::int64_t, std::int64_t>> kSmall{
    {1, 1},  {1, 7},   {5, 1},   {3, 8},   {4, 15}, {7, 16},
    {2, 17}, {17, 33}, {33, 63}, {16, 64}, {5, 65}, {3, 129}};

// With updates that owners fetch several of at a time, too.
const std::vector<std::pair<std::int64_t, std::int64_t>> kScatters{{1, 1},  {5, 7},   {37, 3},
                                                                   {3, 37}, {48, 33}, {16, 32}};

const std::vector<FormCase> kForms{
    {"map",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n}), b = g.input("b", DType::F32, {n});
       g.outputs = {g.unary(Op::Tanh, g.binary(Op::Add, x, g.broadcast(b, {m, n})))};
     },
     kSmall},
    {"numbers_by_value",
     [](Graph& g, auto m, auto n) {
       const Shape s{m, n};
       const NodeId x = g.input("x", DType::F32, s);
       const auto number = [&](const char* name, DType type) {
         return g.broadcast(g.input(name, type, {}, true), s);
       };
       const NodeId scaled = g.binary(Op::Mul, x, number("scale", DType::F32));
       const NodeId moved =
           g.binary(Op::Add, scaled, g.cast(number("offset", DType::BF16), DType::F32));
       const NodeId wide = g.cast(number("wide", DType::F64), DType::F32);
       g.outputs = {g.select(number("which", DType::Bool), moved, g.binary(Op::Max, x, wide))};
     },
     kSmall},
    {"long_map",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m * n});
       g.outputs = {g.binary(Op::Mul, x, x)};
     },
     {{1, 8191}, {1, 8192}, {1, 8193}, {2, 8200}, {3, 16384 + 5}}},
    {"two_outputs",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       NodeId y = g.unary(Op::Exp, x);
       g.outputs = {y, g.binary(Op::Mul, y, x)};
     },
     kSmall},
    {"turned",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {n, m}), y = g.input("y", DType::F32, {m, n});
       g.outputs = {g.binary(Op::Add, g.permute(x, {1, 0}), y)};
     },
     kSmall},
    {"turned_bytes",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::U8, {3, n, m});
       g.outputs = {
           g.binary(Op::Xor, g.permute(x, {0, 2, 1}), scalar(g, 85, {3, m, n}, DType::U8))};
     },
     {{65, 70}, {33, 17}, {64, 64}}},
    {"flipped",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n}), y = g.input("y", DType::F32, {m, n});
       g.outputs = {g.binary(Op::Add, g.flip(x, {1}), g.flip(y, {0}))};
     },
     kSmall},
    {"padded",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       NodeId p = g.pad(x, {1, 3}, {2, 1}, Scalar::of(DType::F32, 2.5));
       NodeId q = g.pad(p, {0, 1}, {0, 0}, Scalar::of(DType::F32, 0.0));
       g.outputs = {g.unary(Op::Exp, q)};
     },
     kSmall},
    {"concatenated_rows",
     [](Graph& g, auto m, auto n) { g.outputs = {g.unary(Op::Exp, join(g, nine(g, m, n), 0))}; },
     {{1, 1}, {1, 16}, {3, 8}, {2, 17}, {5, 65}}},
    {"concatenated_columns",
     [](Graph& g, auto m, auto n) {
       std::vector<NodeId> parts;
       for (NodeId part : nine(g, m, n))
         parts.push_back(g.permute(part, {1, 0}));
       g.outputs = {join(g, parts, 1)};
     },
     {{1, 1}, {3, 8}, {2, 17}, {16, 5}}},
    {"stacked_parts",
     [](Graph& g, auto m, auto n) {
       const NodeId a = g.input("a", DType::F32, {m, n, 2}),
                    b = g.input("b", DType::F32, {m, n, 2});
       g.outputs = {join(
           g,
           {g.shrink(a, {0, 0, 1}, {m, n, 2}), g.unary(Op::Exp, g.shrink(b, {0, 0, 0}, {m, n, 1}))},
           2)};
     },
     kSmall},
    {"stacked_triples",
     [](Graph& g, auto m, auto n) {
       const NodeId a = g.input("a", DType::F32, {m, n, 1}),
                    b = g.input("b", DType::F32, {n, m, 1});
       g.outputs = {
           join(g, {a, g.permute(b, {1, 0, 2}), g.binary(Op::Mul, a, g.unary(Op::Exp, a))}, 2)};
     },
     kSmall},
    {"every_third",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, 3 * n});
       NodeId t = g.shrink(g.reshape(x, {m, n, 3}), {0, 0, 1}, {m, n, 2});
       g.outputs = {
           g.unary(Op::Sqrt, g.binary(Op::Mul, g.reshape(t, {m, n}), g.reshape(t, {m, n})))};
     },
     kSmall},
    {"rows_of_every_second",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, 2 * n});
       NodeId t = g.shrink(g.reshape(x, {m, n, 2}), {0, 0, 1}, {m, n, 2});
       t = g.reshape(t, {m, n});
       g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, t, t), {1}),
                    g.reduce(Op::ReduceMax, t, {1})};
     },
     kSmall},
    {"low_precision",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::BF16, {m, n}), y = g.input("y", DType::BF16, {m, n});
       g.outputs = {g.binary(Op::Add, g.binary(Op::Mul, x, y), g.unary(Op::Tanh, x))};
     },
     kSmall},
    {"rows_gathered",
     [](Graph& g, auto m, auto n) {
       NodeId table = g.input("table", DType::F32, {9, n}),
              index = g.input("index", DType::I64, {m});
       g.outputs = {g.unary(Op::Exp, g.gather(table, index, 0))};
     },
     kSmall},
    {"columns_gathered",
     [](Graph& g, auto m, auto n) {
       NodeId table = g.input("table", DType::F32, {m, 9}),
              index = g.input("index", DType::I32, {n});
       g.outputs = {g.unary(Op::Exp, g.gather(table, index, 1))};
     },
     kSmall},
    {"row_sum",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {g.reduce(Op::ReduceSum, x, {1})};
     },
     kSmall},
    {"column_sum",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {g.reduce(Op::ReduceSum, x, {0})};
     },
     kSmall},
    {"middle_sum",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {3, m, n}), y = g.input("y", DType::F32, {3, m, n});
       g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, y), {1})};
     },
     kSmall},
    {"outer_sum",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, 5, n});
       g.outputs = {g.reduce(Op::ReduceSum, x, {0, 2})};
     },
     kSmall},
    {"argmax_rows",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {g.reduce(Op::ReduceArgMax, x, {1})};
     },
     kSmall},
    {"argmax_columns",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::I32, {m, n});
       g.outputs = {g.reduce(Op::ReduceArgMax, x, {0})};
     },
     kSmall},
    {"softmax",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {softmax(g, x)};
     },
     kSmall},
    {"softmax_of_columns",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {n, m});
       g.outputs = {g.permute(softmax(g, g.permute(x, {1, 0})), {1, 0})};
     },
     kSmall},
    {"layer_norm",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n}), r = g.input("r", DType::F32, {m, n}),
              w = g.input("w", DType::F32, {n});
       NodeId h = g.binary(Op::Add, x, r);
       g.outputs = {layer_norm(g, h, w), h};
     },
     kSmall},
    {"long_rows",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {softmax(g, x)};
     },
     {{2, 1000}, {3, 1024}}},
    {"pieces_of_all",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m * n});
       NodeId total = g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, x), {0});
       NodeId most = g.reduce(Op::ReduceMax, x, {0});
       NodeId factor = g.unary(Op::Recip, g.binary(Op::Add, g.unary(Op::Sqrt, total), most));
       g.outputs = {g.binary(Op::Mul, x, g.broadcast(factor, {m * n})), total};
     },
     {{1, 140001}}},
    {"pieces_of_rows",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       NodeId mean =
           g.binary(Op::Mul, g.reduce(Op::ReduceSum, x, {1}), scalar(g, 1.0 / double(n), {m}));
       NodeId d = sub(g, x, along(g, mean, {m, n}));
       g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, d, d), {1})};
     },
     {{3, 50001}}},
    {"pieces_of_columns",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {g.reduce(Op::ReduceSum, x, {0})};
     },
     {{3000, 50}, {9001, 16}}},
    {"passes_of_column_pieces",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       NodeId most = g.expand(g.reshape(g.reduce(Op::ReduceMax, x, {0}), {1, n}), {m, n});
       NodeId e = g.unary(Op::Exp, sub(g, x, most));
       NodeId total = g.reduce(Op::ReduceSum, e, {0});
       g.outputs = {g.binary(Op::Div, e, g.expand(g.reshape(total, {1, n}), {m, n})), total};
     },
     {{9001, 16}, {3001, 3}}},
    {"variance_of_columns",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       NodeId mean =
           g.binary(Op::Mul, g.reduce(Op::ReduceSum, x, {0}), scalar(g, 1.0 / double(m), {n}));
       NodeId d = sub(g, x, g.expand(g.reshape(mean, {1, n}), {m, n}));
       g.outputs = {g.reduce(Op::ReduceSum, g.binary(Op::Mul, d, d), {0})};
     },
     {{9001, 16}, {37, 65}}},
    {"argmax_of_columns",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::BF16, {m, n});
       g.outputs = {g.reduce(Op::ReduceArgMax, x, {0})};
     },
     {{9001, 16}, {3001, 33}, {37, 65}}},
    {"argmax_of_all",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m * n});
       g.outputs = {g.reduce(Op::ReduceArgMax, x, {0})};
     },
     {{1, 140001}}},
    {"scan",
     [](Graph& g, auto m, auto n) {
       NodeId x = g.input("x", DType::F32, {m, n});
       g.outputs = {g.scan(Op::ScanSum, x, 1), g.scan(Op::ScanMax, x, 0)};
     },
     kSmall},
    {"scatter_rows",
     [](Graph& g, auto m, auto n) {
       NodeId data = g.input("data", DType::F32, {9, n}), index = g.input("index", DType::I64, {m});
       NodeId updates = g.input("updates", DType::F32, {m, n});
       g.outputs = {g.scatter(Op::ScatterAdd, data, index, updates, 0)};
     },
     kScatters},
    {"scatter_columns",
     [](Graph& g, auto m, auto n) {
       NodeId data = g.input("data", DType::BF16, {m, 9}),
              index = g.input("index", DType::I64, {n});
       NodeId updates = g.input("updates", DType::BF16, {m, n});
       g.outputs = {g.scatter(Op::ScatterAdd, data, index, updates, 1),
                    g.scatter(Op::ScatterSet, data, index, updates, 1)};
     },
     kScatters},
};

} // namespace

const std::vector<FormCase>& region_forms() {
  return kForms;
}

std::vector<backend::reference::HostArray> inputs_of(const Graph& g, std::uint64_t seed,
                                                     bool special) {
  auto arrays = random_inputs(g, seed, {.special = special});
  Rng rng(seed);
  for (auto& a : arrays)
    if (a.dtype == DType::I64 || (a.dtype == DType::I32 && a.dims.size() == 1))
      for (std::int64_t i = 0; i < a.size(); ++i)
        a.set(i, {.i = rng.below(11) - 1});
  return arrays;
}

} // namespace egret::testing

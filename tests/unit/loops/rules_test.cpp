// Each rule of src/rules/loops.egg by itself: what it makes of a small tree, and a tree that it
// leaves alone because a side condition does not hold.
#include "backend/cpu/cpu_device.h"
#include "kernel/families.h"
#include "loops/facts.h"
#include "loops/space.h"
#include "loops/terms.h"
#include "support/loop_options.h"
#include "support/loop_regions.h"
#include "support/random_graph.h"
#include "support/targets.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace egret {
namespace {

using kernel::Bind;
using kernel::Region;
using kernel::Target;
using kernel::loops::accumulate;
using kernel::loops::body;
using kernel::loops::mask;
using kernel::loops::near;
using kernel::loops::then;
using loops::LoopOptions;
using loops::LoopReport;
using loops::LoopTerms;
using loops::TreePtr;

TreePtr loop(int axis, std::int64_t n, TreePtr rest, std::int64_t step = 1,
             Bind bind = Bind::Serial) {
  return kernel::loops::loop(axis, Expr(n), step, bind, std::move(rest));
}

/// What the trees of a case are loops of.
enum class Of : std::uint8_t {
  Product, ///< 32 x 48 x 64: axes 0 and 1, stage 0 sums over axis 2
  Softmax, ///< 8 rows (0) of 32 (1): max 0, map 1, sum 2, map 3
  Two,     ///< 8 rows (0) of 32 (1): two reductions, neither reads the other, and their sum
  Running, ///< running sums of 8 rows (0) along 32 (1)
  Odd,     ///< a map of 10 x 20
  Unknown, ///< a map of n
  Eights,  ///< a map of n, a multiple of 8
  Planes,  ///< 4 x 8 x 16: stage 0 sums over axes 1 and 2
  Units,   ///< a product in bf16 for matrix loops of 4 x 16 x 32
  Blocks,  ///< the product, on a GPU
  Warps,   ///< the product in bf16, on a GPU
};

testing::MakeGraph unknown(std::int64_t divisor) {
  return [=](ir::Graph& g) {
    const Expr n = Expr::symbol(divisor == 1 ? "n" : "n8", divisor, 4096, divisor);
    return testing::Outputs{g.unary(Op::Tanh, g.input("x", DType::F32, {n}))};
  };
}

testing::MakeGraph rows(const std::function<testing::Outputs(ir::Graph&, ir::NodeId)>& make) {
  return [=](ir::Graph& g) { return make(g, g.input("x", DType::F32, {8, 32})); };
}

testing::MakeGraph graph_of(Of what) {
  switch (what) {
  case Of::Product:
  case Of::Blocks:
    return testing::product_graph(32, 48, 64);
  case Of::Softmax:
    return testing::softmax_graph(8, 32);
  case Of::Two:
    return rows([](ir::Graph& g, ir::NodeId x) {
      return testing::Outputs{
          g.binary(Op::Add, g.reduce(Op::ReduceSum, x, {1}), g.reduce(Op::ReduceMax, x, {1}))};
    });
  case Of::Running:
    return rows(
        [](ir::Graph& g, ir::NodeId x) { return testing::Outputs{g.scan(Op::ScanSum, x, 1)}; });
  case Of::Odd:
    return testing::map_graph(10, 20);
  case Of::Unknown:
    return unknown(1);
  case Of::Eights:
    return unknown(8);
  case Of::Planes:
    return [](ir::Graph& g) {
      const ir::NodeId x = g.input("x", DType::F32, {4, 8, 16});
      const ir::NodeId y = g.permute(g.input("y", DType::F32, {16, 4, 8}), {1, 2, 0});
      return testing::Outputs{g.reduce(Op::ReduceSum, g.binary(Op::Mul, x, y), {1, 2})};
    };
  case Of::Units:
  case Of::Warps:
    return [](ir::Graph& g) {
      const auto e = testing::sizes("mk", "kn", "mn", 32, 32, 64);
      const auto wide = [&](const char* name, const std::string& letters) {
        return g.cast(testing::input(g, name, letters, e, DType::BF16), DType::F32);
      };
      const ir::NodeId a = wide("a", "mk"), b = wide("b", "kn");
      return testing::Outputs{testing::einsum(g, a, b, e)};
    };
  }
  return {};
}

/// The region with right results for random inputs.
const testing::RegionCase& case_of(Of what) {
  static std::map<Of, testing::RegionCase> made;
  auto found = made.find(what);
  if (found == made.end()) {
    ir::Graph g;
    g.outputs = graph_of(what)(g);
    const auto inputs = testing::random_inputs(g, 1, {.special = false});
    auto cases = testing::region_cases(g, inputs, testing::loop_target());
    EXPECT_EQ(cases.size(), 1u);
    found = made.emplace(what, std::move(cases.at(0))).first;
  }
  return found->second;
}

const Region& region_of(Of what) {
  return case_of(what).region;
}

Target target_of(Of what) {
  if (what == Of::Blocks || what == Of::Warps)
    return testing::test_gpu();
  Target target = testing::loop_target();
  testing::set_units(target, what == Of::Units);
  return target;
}

struct Case {
  const char* rule;
  Of of;
  TreePtr before, after;
  Of refused_of = Of::Product;
  TreePtr refused = nullptr; ///< none: the rule has no side condition
  /// What the trees are a part of; null: of nothing.
  TreePtr (*whole)(TreePtr) = nullptr;
};

/// Loops that are shared by more than one case.
TreePtr product_tree(TreePtr inner) { // inside of the loops over results
  return loop(0, 32, loop(1, 48, std::move(inner)));
}
TreePtr sum(TreePtr inner) {
  return accumulate(0, std::move(inner));
}
TreePtr unknown_loop(std::int64_t by, Of of, TreePtr rest, std::int64_t step) {
  return kernel::loops::loop(0, ceildiv(region_of(of).axes[0].extent, Expr(by)), step, Bind::Serial,
                             std::move(rest));
}
/// A list of parts.
template <class... Rest>
TreePtr list(TreePtr first, Rest... rest) {
  if constexpr (sizeof...(rest) == 0)
    return first;
  else
    return then(std::move(first), list(std::move(rest)...));
}
TreePtr row(TreePtr inner) {
  return loop(0, 8, std::move(inner));
}
TreePtr along(TreePtr inner) {
  return loop(1, 32, std::move(inner));
}
TreePtr acc(int stage, TreePtr inner) {
  return accumulate(stage, std::move(inner));
}

// What is around a part of the softmax or of the two reductions.
TreePtr behind_map(TreePtr part) {
  return list(row(acc(0, along(body(0)))), row(along(body(1))), std::move(part));
}
TreePtr before_quotient(TreePtr part) {
  return then(std::move(part), row(along(body(3))));
}
TreePtr in_row(TreePtr part) {
  return list(row(acc(0, along(body(0)))), row(std::move(part)), row(along(body(3))));
}
TreePtr in_its_row(TreePtr part) {
  return row(then(std::move(part), body(2)));
}
TreePtr before_sum(TreePtr part) {
  return then(std::move(part), row(body(2)));
}
TreePtr behind_max(TreePtr part) {
  return then(row(acc(0, along(body(0)))), std::move(part));
}

// Whole nests of both.
TreePtr reduced(int stage) {
  return acc(stage, along(body(stage)));
}
TreePtr maxima() {
  return row(reduced(0));
}
TreePtr second() {
  return row(reduced(1));
}
TreePtr exps() {
  return row(along(body(1)));
}
TreePtr sums_of_row() {
  return row(reduced(2));
}
TreePtr in_nine_rows(TreePtr part) {
  return then(loop(0, 3, loop(0, 3, std::move(part)), 3), row(body(2)));
}

std::vector<Case> structure_cases() {
  return {
      {"fuse", Of::Softmax, list(row(acc(2, along(body(2)))), row(along(body(3)))),
       row(list(acc(2, along(body(2))), along(body(3)))), Of::Softmax,
       // each stage 1 needs all of stage 0's row
       acc(0, list(along(body(0)), along(body(1)))), behind_map},
      {"fuse-first", Of::Softmax,
       list(row(acc(0, along(body(0)))), row(along(body(1))), row(acc(2, along(body(2))))),
       list(row(list(acc(0, along(body(0))), along(body(1)))), row(acc(2, along(body(2))))),
       Of::Softmax, list(along(body(0)), along(body(1)), row(along(body(3)))), before_quotient},
      {"list", Of::Softmax, then(then(maxima(), exps()), sums_of_row()),
       list(maxima(), exps(), sums_of_row()), Of::Softmax, nullptr, before_quotient},
      {"acc-over-second", Of::Softmax, list(along(body(1)), acc(2, along(body(2)))),
       acc(2, list(along(body(1)), along(body(2)))), Of::Softmax,
       list(acc(2, along(body(2))), acc(2, body(2))), in_row},
      {"acc-over-first", Of::Two, list(acc(0, along(body(0))), acc(1, along(body(1)))),
       acc(0, list(along(body(0)), acc(1, along(body(1))))), Of::Softmax,
       list(acc(0, along(body(0))), along(body(1))), in_its_row}, // reads the sum
      {"then-swap", Of::Two, list(maxima(), second(), row(body(2))),
       list(second(), maxima(), row(body(2))), Of::Softmax, list(body(0), body(1), body(2))},
      {"then-swap-last", Of::Two, list(row(acc(0, along(body(0)))), row(acc(1, along(body(1))))),
       list(row(acc(1, along(body(1)))), row(acc(0, along(body(0))))), Of::Softmax,
       list(body(1), body(2)), before_sum},
      {"fission", Of::Softmax, row(list(acc(2, along(body(2))), along(body(3)))),
       list(row(acc(2, along(body(2)))), row(along(body(3)))), Of::Softmax,
       along(list(body(0), body(1))), behind_map},
      {"mask-of-then", Of::Two, mask(0, list(reduced(0), reduced(1))),
       list(mask(0, reduced(0)), mask(0, reduced(1))), Of::Product, nullptr, in_nine_rows},
      {"acc-of-second", Of::Softmax, acc(2, list(along(body(1)), along(body(2)))),
       list(along(body(1)), acc(2, along(body(2)))), Of::Softmax,
       acc(0, list(along(body(1)), along(body(0)))), in_row}, // reads it unfinished
      {"acc-of-first", Of::Two, acc(0, list(along(body(0)), acc(1, along(body(1))))),
       list(acc(0, along(body(0))), acc(1, along(body(1)))), Of::Softmax,
       acc(0, list(along(body(0)), along(body(1)))), in_its_row},
      {"list-of-parts", Of::Softmax, then(then(maxima(), exps()), sums_of_row()),
       list(maxima(), exps(), sums_of_row()), Of::Softmax, nullptr, before_quotient},
      {"inline", Of::Softmax,
       list(row(along(body(1))), row(acc(2, along(body(2)))), row(along(body(3)))),
       list(row(acc(2, along(body(2)))), row(along(body(3)))), Of::Softmax,
       list(row(acc(2, along(body(2)))), row(along(body(3)))), behind_max}, // a sum is no map
      {"stages-in-order", Of::Two, list(second(), maxima(), row(body(2))),
       list(maxima(), second(), row(body(2))), Of::Two, list(body(0), body(1), body(1))},
      {"last-stages-in-order", Of::Two,
       list(row(acc(1, along(body(1)))), row(acc(0, along(body(0))))),
       list(row(acc(0, along(body(0)))), row(acc(1, along(body(1))))), Of::Two,
       list(body(0), body(1)), before_sum},
  };
}

std::vector<Case> order_cases() {
  const auto deep = [](TreePtr inner) { return loop(2, 64, std::move(inner)); };
  const TreePtr split_scan = loop(1, 4, loop(1, 8, body(0)), 8);
  return {
      {"exchange", Of::Product, product_tree(sum(deep(body(0)))),
       loop(1, 48, loop(0, 32, sum(deep(body(0))))), Of::Running, split_scan},
      {"acc-out", Of::Product, loop(0, 32, loop(1, 48, sum(deep(body(0))))),
       loop(0, 32, sum(loop(1, 48, deep(body(0))))), Of::Product, deep(sum(body(0)))},
      {"acc-in", Of::Product, loop(0, 32, sum(loop(1, 48, deep(body(0))))),
       loop(0, 32, loop(1, 48, sum(deep(body(0))))), Of::Product, sum(deep(body(0)))},
      {"exchange-sums", Of::Planes, loop(0, 4, sum(loop(1, 8, loop(2, 16, body(0))))),
       loop(0, 4, sum(loop(2, 16, loop(1, 8, body(0))))), Of::Running, split_scan},
      {"exchange-back", Of::Product, loop(1, 48, loop(0, 32, sum(deep(body(0))))),
       product_tree(sum(deep(body(0)))), Of::Product, product_tree(sum(deep(body(0))))},
      {"exchange-steps-back", Of::Odd, loop(0, 10, loop(1, 4, loop(1, 5, body(0), 4))),
       loop(0, 10, loop(1, 5, loop(1, 4, body(0)), 4)), Of::Running,
       loop(1, 8, loop(1, 4, body(0), 8))},
      {"acc-in-back", Of::Product, loop(0, 32, sum(loop(1, 48, deep(body(0))))),
       product_tree(sum(deep(body(0)))), Of::Product, sum(deep(body(0)))},
      {"exchange-sums-back", Of::Planes, loop(0, 4, sum(loop(2, 16, loop(1, 8, body(0))))),
       loop(0, 4, sum(loop(1, 8, loop(2, 16, body(0))))), Of::Planes,
       loop(0, 4, sum(loop(1, 8, loop(2, 16, body(0)))))},
      {"exchange-sum-steps-back", Of::Product,
       product_tree(sum(loop(2, 8, loop(2, 8, body(0), 8)))),
       product_tree(sum(loop(2, 8, loop(2, 8, body(0)), 8))), Of::Running,
       loop(1, 8, loop(1, 4, body(0), 8))},
  };
}

TreePtr in_loops(TreePtr part) {
  return loop(0, 12, loop(1, 24, std::move(part)));
}
TreePtr in_product(TreePtr part) {
  return product_tree(std::move(part));
}

TreePtr in_odd(TreePtr part) {
  return loop(0, 10, loop(1, 20, std::move(part)));
}
TreePtr in_columns(TreePtr part) {
  return loop(1, 48, std::move(part));
}
TreePtr in_units(TreePtr part) {
  return loop(0, 8, loop(1, 2, sum(loop(2, 2, std::move(part), 32)), 16), 4);
}

std::vector<Case> size_cases() {
  const auto deep = [] { return sum(loop(2, 64, body(0))); };
  const auto across = [] { return loop(1, 20, body(0)); };
  return {
      {"split", Of::Product, product_tree(deep()), loop(0, 8, loop(0, 4, loop(1, 48, deep())), 4),
       Of::Odd, loop(1, 20, body(0), 1, Bind::Core)}, // only a plain loop
      {"split-rest", Of::Odd, loop(0, 10, loop(1, 20, body(0))),
       loop(0, 3, loop(0, 4, mask(0, loop(1, 20, body(0)))), 4), Of::Odd,
       loop(1, 2, loop(1, 10, body(0)), 10)}, // not all of the axis: 8 does not divide 10
      {"split-unknown", Of::Eights, unknown_loop(1, Of::Eights, body(0), 1),
       unknown_loop(8, Of::Eights, loop(0, 8, body(0)), 8), Of::Unknown,
       unknown_loop(1, Of::Unknown, body(0), 1)},
      {"split-unknown-rest", Of::Unknown, unknown_loop(1, Of::Unknown, body(0), 1),
       unknown_loop(8, Of::Unknown, loop(0, 8, mask(0, body(0))), 8), Of::Unknown,
       unknown_loop(8, Of::Unknown, loop(0, 8, body(0)), 4)}, // gaps
      {"merge", Of::Product, loop(0, 8, loop(0, 4, loop(1, 48, deep())), 4), product_tree(deep()),
       Of::Product, loop(0, 8, loop(0, 4, loop(1, 48, deep())), 8)},
      {"merge-unknown-rest", Of::Unknown,
       unknown_loop(8, Of::Unknown, loop(0, 8, mask(0, body(0))), 8),
       unknown_loop(1, Of::Unknown, mask(0, body(0)), 1), Of::Unknown,
       unknown_loop(8, Of::Unknown, loop(0, 8, body(0)), 8)},
      {"merge-unknown", Of::Eights, unknown_loop(8, Of::Eights, loop(0, 8, body(0)), 8),
       unknown_loop(1, Of::Eights, body(0), 1), Of::Unknown,
       unknown_loop(8, Of::Unknown, loop(0, 8, body(0)), 8)},
      {"single", Of::Odd, loop(0, 1, body(0)), body(0), Of::Odd, loop(0, 2, body(0)), in_odd},
      {"trim", Of::Odd, loop(0, 12, mask(0, across())), loop(0, 10, mask(0, across())), Of::Odd,
       loop(0, 10, mask(0, body(0)))},
      {"unmask", Of::Odd, loop(0, 10, mask(0, across())), loop(0, 10, across()), Of::Odd,
       loop(0, 5, mask(0, body(0)), 4)},
      {"unmask-unknown", Of::Unknown, unknown_loop(1, Of::Unknown, mask(0, body(0)), 1),
       unknown_loop(1, Of::Unknown, body(0), 1), Of::Unknown,
       unknown_loop(8, Of::Unknown, mask(0, body(0)), 8)},
      {"mask-out", Of::Odd, loop(0, 12, loop(1, 20, mask(0, body(0)))),
       loop(0, 12, mask(0, loop(1, 20, body(0)))), Of::Odd, loop(0, 12, mask(0, body(0)))},
      {"mask-of-acc", Of::Product, loop(0, 32, sum(mask(0, loop(2, 64, body(0))))),
       loop(0, 32, mask(0, sum(loop(2, 64, body(0))))), Of::Product,
       sum(mask(2, loop(2, 64, body(0)))), in_columns},
      {"mask-once", Of::Odd, mask(0, mask(0, mask(1, body(0)))), mask(0, mask(1, body(0))), Of::Odd,
       nullptr, in_loops},
      {"mask-order", Of::Odd, mask(1, mask(0, body(0))), mask(0, mask(1, body(0))), Of::Odd,
       mask(0, mask(1, body(0))), in_loops},
  };
}

std::vector<Case> binding_cases() {
  const auto deep = [](Bind bind = Bind::Serial) { return loop(2, 64, body(0), 1, bind); };
  const auto lanes = [](Bind bind) { return sum(loop(2, 4, loop(2, 16, body(0), 1, bind), 16)); };
  const auto first = [&](Bind bind) { return loop(0, 32, loop(1, 48, sum(deep())), 1, bind); };
  const TreePtr reduced = sum(deep()), lanes_of_scan = loop(1, 16, body(0));
  const auto bound = [&](Bind bind) { return sum(deep(bind)); };
  const auto parts = [](Bind bind) { return sum(loop(2, 8, sum(loop(2, 8, body(0))), 8, bind)); };
  const auto unit = [](Bind bind) {
    return loop(0, 4, loop(1, 16, loop(2, 32, body(0), 1, bind), 1, bind), 1, bind);
  };
  const TreePtr scan_of_all = acc(0, loop(1, 32, acc(0, body(0)))); // no part of a running sum
  const auto part = [] { return sum(loop(2, 8, body(0))); };
  const TreePtr of_all = sum(loop(2, 8, loop(0, 32, loop(1, 48, part())), 8, Bind::Grid));
  const TreePtr of_each = sum(loop(0, 32, loop(2, 8, loop(1, 48, part()), 8, Bind::Grid)));
  return {
      {"unroll", Of::Product, product_tree(sum(loop(2, 16, loop(2, 4, body(0)), 4))),
       product_tree(sum(loop(2, 16, loop(2, 4, body(0), 1, Bind::Unroll), 4))), Of::Product,
       reduced},
      {"vectorize", Of::Product, loop(0, 32, loop(1, 3, loop(1, 16, sum(deep())), 16)),
       loop(0, 32, loop(1, 3, loop(1, 16, sum(deep()), 1, Bind::Vector), 16)), Of::Running,
       lanes_of_scan},
      {"bind-core", Of::Product, first(Bind::Serial), first(Bind::Core), Of::Product, reduced},
      {"bind-grid", Of::Blocks, first(Bind::Serial), first(Bind::Grid), Of::Blocks, reduced},
      {"bind-warp", Of::Blocks, first(Bind::Serial), first(Bind::Warp), Of::Blocks, reduced},
      {"bind-lane", Of::Blocks, first(Bind::Serial), first(Bind::Lane), Of::Blocks, reduced},
      {"vectorize-sums", Of::Product, product_tree(lanes(Bind::Serial)),
       product_tree(lanes(Bind::Vector)), Of::Running, lanes_of_scan},
      {"near", Of::Product, product_tree(sum(deep())), near(1, product_tree(sum(deep()))),
       Of::Product, sum(deep())}, // both operands change along the depth
      {"split-reduction", Of::Product, product_tree(sum(loop(2, 8, loop(2, 8, body(0)), 8))),
       product_tree(parts(Bind::Serial)), Of::Running, acc(0, along(body(0)))},
      {"bind-parts", Of::Product, product_tree(parts(Bind::Serial)),
       product_tree(parts(Bind::Core)), Of::Running, scan_of_all},
      {"parts-of-all", Of::Blocks, of_each, of_all, Of::Product, of_each}, // by blocks, not cores
      {"matrix-unit", Of::Units, unit(Bind::Serial), unit(Bind::Matrix), Of::Product,
       unit(Bind::Serial), in_units}, // f32
      {"unbind-vector", Of::Product,
       loop(0, 32, loop(1, 3, loop(1, 16, sum(deep()), 1, Bind::Vector), 16)),
       loop(0, 32, loop(1, 3, loop(1, 16, sum(deep())), 16)), Of::Running,
       loop(1, 16, body(0), 1, Bind::Vector)},
      {"roll", Of::Product, sum(deep(Bind::Unroll)), sum(deep()), Of::Product, nullptr, in_product},
      {"unbind-core", Of::Product, first(Bind::Core), first(Bind::Serial), Of::Product,
       bound(Bind::Core)},
      {"unbind-grid", Of::Blocks, first(Bind::Grid), first(Bind::Serial), Of::Blocks,
       bound(Bind::Grid)},
      {"unbind-warp", Of::Blocks, first(Bind::Warp), first(Bind::Serial), Of::Blocks,
       bound(Bind::Warp)},
      {"unbind-lane", Of::Blocks, first(Bind::Lane), first(Bind::Serial), Of::Blocks,
       bound(Bind::Lane)},
      {"near-away", Of::Product, near(1, product_tree(sum(deep()))), product_tree(sum(deep()))},
      {"unbind-vector-sums", Of::Product, product_tree(lanes(Bind::Vector)),
       product_tree(lanes(Bind::Serial)), Of::Running, loop(1, 16, body(0), 1, Bind::Vector)},
      {"unbind-lane-sums", Of::Blocks,
       product_tree(sum(loop(2, 2, loop(2, 32, body(0), 1, Bind::Lane), 32))),
       product_tree(sum(loop(2, 2, loop(2, 32, body(0)), 32))), Of::Running,
       loop(1, 16, body(0), 1, Bind::Lane)},
      {"unbind-warp-sums", Of::Blocks,
       product_tree(sum(loop(2, 8, loop(2, 8, body(0)), 8, Bind::Warp))),
       product_tree(sum(loop(2, 8, loop(2, 8, body(0)), 8))), Of::Running,
       loop(1, 16, body(0), 1, Bind::Warp)},
      {"unit-away", Of::Units, unit(Bind::Matrix), unit(Bind::Serial), Of::Product,
       unit(Bind::Matrix), in_units},
      {"parts-of-each", Of::Blocks, of_all, of_each, Of::Product, of_all},
      {"unbind-parts", Of::Product, product_tree(parts(Bind::Core)),
       product_tree(parts(Bind::Serial)), Of::Running,
       acc(0, loop(1, 32, acc(0, body(0)), 1, Bind::Core))},
      {"join-parts", Of::Product, product_tree(parts(Bind::Serial)),
       product_tree(sum(loop(2, 8, loop(2, 8, body(0)), 8))), Of::Running, scan_of_all},
      {"parts-of-parts", Of::Planes,
       loop(0, 4, sum(loop(1, 8, loop(2, 2, sum(loop(2, 8, body(0))), 8)))),
       loop(0, 4, sum(loop(1, 8, sum(loop(2, 2, sum(loop(2, 8, body(0))), 8))))), Of::Running,
       acc(0, loop(1, 4, loop(1, 8, body(0)), 8))},
      {"acc-once", Of::Product, sum(sum(deep())), sum(deep()), Of::Product, nullptr, in_product},
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (auto* group : {&structure_cases, &order_cases, &size_cases, &binding_cases})
    for (Case& c : group())
      cases.push_back(std::move(c));
  return cases;
}

/// Everything but one rule and what is known of trees.
LoopOptions only(const std::string& rule) {
  LoopOptions options = testing::unhurried();
  for (const loops::RuleText& other : loops::rules_of(loops::rules_text()))
    if (other.name != rule && other.ruleset != "known")
      options.without.push_back(other.name);
  return options;
}

std::string ruleset_of(const std::string& rule) {
  for (const loops::RuleText& one : loops::rules_of(loops::rules_text()))
    if (one.name == rule)
      return one.ruleset;
  return "";
}

std::uint64_t fired(const LoopReport& report, const std::string& rule) {
  for (const loops::LoopRule& one : report.rules)
    if (one.name == rule)
      return one.fired;
  return 0;
}

class LoopRules : public ::testing::TestWithParam<Case> {};

TEST_P(LoopRules, MakesTheTree) {
  const Case& c = GetParam();
  const Target target = target_of(c.of);
  LoopTerms terms(region_of(c.of), target, only(c.rule));
  const auto before = terms.add(*c.before), after = terms.add(*c.after);
  ASSERT_FALSE(terms.equal(before, after));
  LoopReport report;
  const std::string ruleset = ruleset_of(c.rule);
  const char* const rulesets[] = {ruleset.c_str()};
  terms.run("test", rulesets, {.rows = 20000}, report, 3);
  terms.egraph().rebuild();
  EXPECT_GT(fired(report, c.rule), 0u);
  EXPECT_TRUE(terms.equal(before, after))
      << kernel::loops::to_text(*c.before, region_of(c.of)) << "\n"
      << kernel::loops::to_text(*c.after, region_of(c.of));
}

TEST_P(LoopRules, IsRefusedWhereItsSideConditionFails) {
  const Case& c = GetParam();
  if (!c.refused)
    return;
  const Target target = target_of(c.refused_of);
  LoopTerms terms(region_of(c.refused_of), target, only(c.rule));
  terms.add(*c.refused);
  LoopReport report;
  const std::string ruleset = ruleset_of(c.rule);
  const char* const rulesets[] = {ruleset.c_str()};
  terms.run("test", rulesets, {.rows = 20000}, report, 1);
  EXPECT_EQ(fired(report, c.rule), 0u)
      << kernel::loops::to_text(*c.refused, region_of(c.refused_of));
}

/// The kernel of a whole tree for a target, run by the interpreter and, where this machine is one,
/// as machine code; what is wrong.
std::string wrong_values(const testing::RegionCase& c, const kernel::loops::Tree& tree,
                         const Target& target) {
  static const auto device = backend::cpu::make_cpu_device(2);
  kernel::Schedule schedule;
  schedule.generator = "loops";
  schedule.tree = kernel::loops::to_text(tree, c.region);
  const kernel::Lowered lowered = kernel::loops_generator().lower(c.region, schedule, target);
  if (!lowered.ok)
    return schedule.tree + ": " + lowered.reason;
  kernel::verify(lowered.program);
  std::string wrong = testing::run_and_compare(c, lowered.program);
  const bool runs_here =
      target.threads == 0 && (!testing::has_pairs(target) || testing::has_pairs(device->target()));
  return !wrong.empty() || !runs_here
             ? wrong
             : testing::run_and_compare(c, lowered.program, {.device = device.get()});
}

/// Loops for cores as loops for blocks.
TreePtr for_blocks(const TreePtr& t) {
  if (!t)
    return t;
  kernel::loops::Tree made = *t;
  if (made.kind == kernel::loops::Kind::For && made.bind == Bind::Core)
    made.bind = Bind::Grid;
  made.first = for_blocks(t->first);
  made.rest = for_blocks(t->rest);
  return std::make_shared<const kernel::loops::Tree>(std::move(made));
}

/// A warp's product is of 16 x 8 by 16, in both directions; none of f32, and none of other sizes.
TEST(LoopUnits, AreOfferedByGpus) {
  const auto around = [](std::int64_t columns, Bind bind, TreePtr inside) {
    return loop(0, 16, loop(1, columns, loop(2, 16, std::move(inside), 1, bind), 1, bind), 1, bind);
  };
  const auto unit = [&](std::int64_t columns, Bind bind) { return around(columns, bind, body(0)); };
  const auto becomes = [](Of of, const char* rule, const char* ruleset, const TreePtr& before,
                          const TreePtr& after) {
    LoopTerms terms(region_of(of), target_of(of), only(rule));
    const auto a = terms.add(*before), b = terms.add(*after);
    LoopReport report;
    const char* const rulesets[] = {ruleset};
    terms.run("test", rulesets, {.rows = 20000}, report, 3);
    terms.egraph().rebuild();
    return terms.equal(a, b);
  };
  const std::string away = ruleset_of("unit-away");
  EXPECT_TRUE(
      becomes(Of::Warps, "matrix-unit", "unit", unit(8, Bind::Serial), unit(8, Bind::Matrix)));
  EXPECT_TRUE(
      becomes(Of::Warps, "unit-away", away.c_str(), unit(8, Bind::Matrix), unit(8, Bind::Serial)));
  EXPECT_FALSE(
      becomes(Of::Warps, "matrix-unit", "unit", unit(16, Bind::Serial), unit(16, Bind::Matrix)));
  EXPECT_FALSE(
      becomes(Of::Blocks, "matrix-unit", "unit", unit(8, Bind::Serial), unit(8, Bind::Matrix)));
  EXPECT_FALSE(
      becomes(Of::Blocks, "unit-away", away.c_str(), unit(8, Bind::Matrix), unit(8, Bind::Serial)));
  // Whatever masks leave out; but nothing else may be between the loops and the body.
  for (const Bind bind : {Bind::Serial, Bind::Matrix}) {
    const Bind other = bind == Bind::Serial ? Bind::Matrix : Bind::Serial;
    const char* rule = bind == Bind::Serial ? "matrix-unit" : "unit-away";
    const std::string ruleset = ruleset_of(rule);
    const TreePtr masked = mask(0, mask(1, mask(2, body(0))));
    EXPECT_TRUE(becomes(Of::Warps, rule, ruleset.c_str(), around(8, bind, masked),
                        around(8, other, masked)));
    EXPECT_FALSE(becomes(Of::Warps, rule, ruleset.c_str(), around(8, bind, near(0, body(0))),
                         around(8, other, near(0, body(0)))));
  }
  const TreePtr whole =
      loop(0, 2, loop(1, 4, sum(loop(2, 4, unit(8, Bind::Matrix), 16)), 8, Bind::Grid), 16);
  EXPECT_EQ(wrong_values(testing::aligned_for(case_of(Of::Warps), testing::test_gpu()), *whole,
                         testing::test_gpu()),
            "");
  Target other = testing::test_gpu();
  EXPECT_EQ(loops::unit_products(region_of(Of::Warps), other).size(), 1u);
  testing::set_architecture(other, 75);
  EXPECT_TRUE(loops::unit_products(region_of(Of::Warps), other).empty());
  other = testing::test_gpu();
  other.subgroup = 64;
  EXPECT_TRUE(loops::unit_products(region_of(Of::Warps), other).empty());
}

bool is_of_gpu(const Case& c) {
  return c.of == Of::Blocks || c.of == Of::Warps;
}

TEST_P(LoopRules, KernelsOfBothTreesGiveTheRegionsValues) {
  const Case& c = GetParam();
  if (is_of_gpu(c))
    return;
  for (const TreePtr& part : {c.before, c.after}) {
    const TreePtr whole = c.whole ? c.whole(part) : part;
    ASSERT_EQ(kernel::loops::why_not(region_of(c.of), *whole), "")
        << kernel::loops::to_text(*whole, region_of(c.of));
    EXPECT_EQ(wrong_values(case_of(c.of), *whole, target_of(c.of)), "");
  }
}

/// Rules between trees of which no program of a GPU is written, or that are of a CPU's unit:
/// LoopUnits has a GPU's.
const std::set<std::string> kOfCpus = {"matrix-unit", "unit-away"};

TEST_P(LoopRules, KernelsOfAGpuGiveTheRegionsValues) {
  const Case& c = GetParam();
  if (kOfCpus.contains(c.rule))
    return;
  const Target gpu = testing::test_gpu();
  const testing::RegionCase aligned = testing::aligned_for(case_of(c.of), gpu);
  for (const TreePtr& part : {c.before, c.after})
    EXPECT_EQ(wrong_values(aligned, *for_blocks(c.whole ? c.whole(part) : part), gpu), "");
}

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.rule;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Each, LoopRules, ::testing::ValuesIn(all_cases()), name_of);

TEST(LoopRuleFile, EveryRuleHasACase) {
  std::set<std::string> tested;
  for (const Case& c : all_cases())
    tested.insert(c.rule);
  for (const loops::RuleText& rule : loops::rules_of(loops::rules_text())) {
    EXPECT_TRUE(rule.ruleset == "known" || tested.contains(rule.name)) << rule.name;
    EXPECT_FALSE(rule.comment.empty()) << rule.name;
    EXPECT_TRUE(rule.tag == "exact" || rule.tag == "reassociates") << rule.name;
  }
}

TEST(LoopRuleFile, RefusesRulesWithoutNameCommentOrTag) {
  const auto message = [](std::string_view text) -> std::string {
    try {
      loops::rules_of(text, "mine.egg");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  const std::string head = "; tag: exact\n(ruleset r)\n";
  EXPECT_NE(message(head + "; why\n(rule ((= t (Body c))) ((union t t)) :ruleset r)")
                .find("mine.egg:4: the rule has no name"),
            std::string::npos);
  EXPECT_NE(message(head + "\n(rule ((= t (Body c))) ((union t t)) :ruleset r :name \"x\")")
                .find("rule \"x\" has no comment"),
            std::string::npos);
  EXPECT_NE(message("(ruleset r)").find("has no line `; tag: ...`"), std::string::npos);
  EXPECT_NE(message("; why\n(rule ((= t (Body c))) ((union t t)) :ruleset q :name \"x\")")
                .find("is of no ruleset with a tag"),
            std::string::npos);
}

} // namespace
} // namespace egret

// The e-graph by itself: terms, rules from C++ and from text, a run within limits, extraction.
#include "egret/egraph.h"

#include <iostream>

using namespace egret::egraph;

int main() {
  EGraph g;
  const SortId expr = g.declare_sort("Expr"), i64 = g.sort("i64"), text = g.sort("String");
  const FunctionId num = g.declare_constructor("Num", {i64}, expr);
  const FunctionId var = g.declare_constructor("Var", {text}, expr);
  const FunctionId mul = g.declare_constructor("Mul", {expr, expr}, expr, {.cost = 4});
  const FunctionId shift = g.declare_constructor("Shl", {expr, i64}, expr);

  // A rule from C++: a product of constants is a constant.
  RuleBuilder fold(g);
  const auto e = fold.var("e", expr), x = fold.var("x", i64), y = fold.var("y", i64);
  fold.where_equal(e, fold.call(mul, {fold.call(num, {x}), fold.call(num, {y})}));
  fold.then_union(e, fold.call(num, {fold.primitive("*", {x, y})}));
  g.add_rule(std::move(fold), {.name = "fold"});
  // The same in egglog's language; both kinds work together.
  g.run_program(R"(
    (rewrite (Mul a b) (Mul b a) :name "commutes")
    (rewrite (Mul a (Mul b c)) (Mul (Mul a b) c) :name "associates")
    (rewrite (Mul a (Num n)) (Shl a (log2 n)) :when ((> n 0) (= 0 (& n (- n 1)))) :name "shift"))");

  // 2 * (x * 4) is x << 3.
  const Value two = g.add(num, {g.i64(2)}), four = g.add(num, {g.i64(4)});
  const Value product = g.add(mul, {two, g.add(mul, {g.add(var, {g.string("x")}), four})});
  const RunReport report = g.run(g.ruleset(""), 10, {.seconds = 10, .rows = 10000});
  std::cout << "stopped by a limit: " << (report.stop == StopReason::Done ? "no" : "yes") << ", "
            << report.rows << " rows after " << report.iterations << " iterations\n";
  for (const RuleReport& rule : report.rules)
    std::cout << "  " << rule.name << ": " << rule.matches << " matches\n";

  const TermGraph best = g.extract({expr, product});
  std::cout << g.show(best) << " costs " << best.cost << "\n";
  const Value eight = *g.lookup(num, {g.i64(8)});
  const Value shifted = *g.lookup(shift, {*g.lookup(var, {g.string("x")}), g.i64(3)});
  return g.equal(expr, product, shifted) && eight != shifted ? 0 : 1;
}

// The order in which einsum multiplies its operands.
#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/ir.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace egret {
namespace {

using Sizes = std::map<char, std::int64_t>;

std::int64_t count_of(const Shape& shape) {
  std::int64_t count = 1;
  for (const Expr& size : shape)
    count *= size.value();
  return count;
}

std::vector<std::string> sides_of(const std::string& formula) {
  std::vector<std::string> sides(1);
  for (const char c : formula)
    if (c == ',' || c == '-')
      sides.emplace_back();
    else if (c != '>')
      sides.back() += c;
  return sides;
}

std::vector<Tensor> operands_of(const std::string& formula, const Sizes& sizes) {
  std::vector<Tensor> operands;
  const std::vector<std::string> sides = sides_of(formula);
  for (std::size_t i = 0; i + 1 < sides.size(); ++i) {
    Shape shape;
    for (const char c : sides[i])
      shape.push_back(sizes.at(c));
    // Small integers: every order gives the same sums.
    Tensor a = arange(count_of(shape)).reshape(shape);
    operands.push_back(remainder(a * 7 + std::int64_t(i), 5).to(DType::F32) - 2);
  }
  return operands;
}

/// By the definition, one element after the other.
std::vector<double> by_definition(const std::string& formula, const Sizes& sizes,
                                  const std::vector<Tensor>& operands) {
  const std::vector<std::string> sides = sides_of(formula);
  std::vector<std::vector<double>> values;
  for (const Tensor& a : operands)
    values.push_back(a.to_vector<double>());
  const auto offset = [&](const std::string& side, const std::map<char, std::int64_t>& at) {
    std::int64_t n = 0;
    for (const char c : side)
      n = n * sizes.at(c) + at.at(c);
    return std::size_t(n);
  };
  std::int64_t count = 1;
  for (const char c : sides.back())
    count *= sizes.at(c);
  std::vector<double> result(std::size_t(count), 0);
  std::map<char, std::int64_t> at;
  for (const auto& [c, size] : sizes)
    at[c] = 0;
  for (;;) {
    double term = 1;
    for (std::size_t i = 0; i < values.size(); ++i)
      term *= values[i][offset(sides[i], at)];
    result[offset(sides.back(), at)] += term;
    auto c = at.begin();
    for (; c != at.end() && ++c->second == sizes.at(c->first); ++c)
      c->second = 0;
    if (c == at.end())
      return result;
  }
}

/// Multiplications in the graph that the formula becomes.
std::int64_t multiplications(const std::string& formula, const Sizes& sizes) {
  auto compiled = compile([&](const std::vector<Tensor>& t) { return einsum(formula, t); });
  compiled(operands_of(formula, sizes));
  const ir::Graph graph = ir::parse_graph(compiled.graph_text());
  std::int64_t count = 0;
  for (ir::NodeId id = 0; id < ir::NodeId(graph.size()); ++id)
    if (graph[id].op == Op::Mul)
      count += count_of(graph[id].shape);
  return count;
}

TEST(EinsumOrder, KeepsTheValues) {
  const Sizes sizes{{'a', 2}, {'b', 3}, {'c', 4}, {'d', 2}, {'e', 3}, {'f', 2}};
  for (const std::string formula :
       {"ab,bc,cd->ad", "ab,bc,cd,de->ae", "ab,bc,bd->acd", "abc,ad,be,cf->def", "ab,cd,ef->",
        "ab,b,cb,c->a", "ab,bc->a", "ab,c->ab", "abc,b,c->a", "ab,ba,ab->ab", "a,b,c,d,e,f->fa",
        "aab,bc,cd->d", "ab,bc,cd,de,ef,fa,ab,bc,cd->e"}) {
    SCOPED_TRACE(formula);
    Sizes used;
    for (const char c : formula)
      if (sizes.count(c))
        used[c] = sizes.at(c);
    const auto operands = operands_of(formula, used);
    EXPECT_EQ(einsum(formula, operands).to_vector<double>(),
              by_definition(formula, used, operands));
  }
}

TEST(EinsumOrder, TakesAnyNumberOfOperands) {
  std::string formula = "ab";
  for (int i = 1; i < 70; ++i)
    formula += i % 2 == 0 ? ",ab" : ",ba";
  const std::vector<Tensor> operands(70, full({2, 2}, 1.0));
  EXPECT_EQ(einsum(formula + "->a", operands).to_vector<double>(), (std::vector<double>{2, 2}));
}

TEST(EinsumOrder, TakesTheFewestMultiplications) {
  // From left to right two matrices would meet; from right to left a vector meets a matrix twice.
  EXPECT_EQ(multiplications("ab,bc,c->a", {{'a', 40}, {'b', 40}, {'c', 40}}), 2 * 40 * 40);
  // Weighted sums of outer products: the products of the small factors come first.
  EXPECT_EQ(multiplications("nm,md,me->nde", {{'n', 30}, {'m', 20}, {'d', 2}, {'e', 3}}),
            20 * 2 * 3 + 30 * 20 * 2 * 3);
  // What nothing else has is summed before it is multiplied.
  EXPECT_EQ(multiplications("ab,bcd->a", {{'a', 30}, {'b', 4}, {'c', 5}, {'d', 6}}), 30 * 4);
  // The narrow axis is kept to the last.
  EXPECT_EQ(
      multiplications("ab,bc,cd,de->ae", {{'a', 30}, {'b', 30}, {'c', 30}, {'d', 2}, {'e', 30}}),
      3 * 30 * 30 * 2);
  // No order is better than from left to right.
  EXPECT_EQ(multiplications("ab,bc,cd->ad", {{'a', 2}, {'b', 30}, {'c', 20}, {'d', 40}}),
            2 * 30 * 20 + 2 * 20 * 40);
}

} // namespace
} // namespace egret

// Random sums and products that are rounded to 16 bits: factored, they are what they were as far as
// f32 tells them apart, and take no more operations.
#include "kernel/factor_sums.h"
#include "kernel/rounded_uses.h"

#include "support/rounded_programs.h"
#include "support/scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace egret::testing {
namespace {

using kernel::KernelProgram;
using kernel::ValueId;

constexpr int kInputs = 3, kScalars = 2, kLeaves = kInputs + kScalars;
constexpr double kNumbers[] = {1, -1, 0.5, 2, -3.25, 0.1};

/// One value of a body, from the leaves (inputs, then scalars) and values before it.
struct Node {
  enum class Kind { Number, Add, Mul, Max, Tanh, Select } kind = Kind::Add;
  std::size_t a = 0, b = 0;
  double number = 0;
};

struct Random {
  std::mt19937_64 engine;
  std::size_t below(std::size_t n) { return engine() % n; }
  bool one_of(std::size_t n) { return below(n) == 0; }
};

std::vector<Node> random_body(Random& random) {
  std::vector<Node> nodes;
  const std::size_t size = 4 + random.below(20);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t known = kLeaves + nodes.size();
    // What was made last is used most, so that little is made for nothing.
    const auto operand = [&] {
      return random.one_of(2) ? random.below(known)
                              : known - 1 - random.below(std::min<std::size_t>(known, 4));
    };
    Node node{Node::Kind::Add, operand(), operand()};
    if (random.one_of(8))
      node = {Node::Kind::Number, 0, 0, kNumbers[random.below(std::size(kNumbers))]};
    else if (random.one_of(12))
      node.kind = random.one_of(2) ? Node::Kind::Max : Node::Kind::Select;
    else if (random.one_of(12))
      node.kind = Node::Kind::Tanh;
    else if (!random.one_of(3))
      node.kind = Node::Kind::Mul;
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<ValueId> values_of(const RoundedBody& f, const std::vector<Node>& nodes,
                               std::size_t outputs) {
  std::vector<ValueId> v = f.inputs;
  v.insert(v.end(), f.scalars.begin(), f.scalars.end());
  for (const Node& n : nodes)
    switch (n.kind) {
    case Node::Kind::Number:
      v.push_back(f.number(n.number));
      break;
    case Node::Kind::Add:
      v.push_back(f.add(v[n.a], v[n.b]));
      break;
    case Node::Kind::Mul:
      v.push_back(f.mul(v[n.a], v[n.b]));
      break;
    case Node::Kind::Max:
      v.push_back(f.op(Op::Max, {v[n.a], v[n.b]}));
      break;
    case Node::Kind::Tanh:
      v.push_back(f.op(Op::Tanh, {v[n.a]}));
      break;
    case Node::Kind::Select:
      v.push_back(f.op(Op::Select, {f.b.apply(Op::Lt, DType::Bool, {v[0], v[1]}), v[n.a], v[n.b]}));
      break;
    }
  return {v.end() - std::ptrdiff_t(outputs), v.end()};
}

/// A value, the sum of the magnitudes that it is made of, and by how many 2^-24 of that its f32 may
/// be off.
struct Exact {
  double value, size, error;
};
Exact exact(double value, double size, double error) {
  return {value, size, error};
}
std::vector<Exact> exact_values(const std::vector<Node>& nodes, const double* leaves,
                                std::size_t outputs) {
  std::vector<Exact> v;
  for (int i = 0; i < kLeaves; ++i)
    v.push_back(exact(leaves[i], std::fabs(leaves[i]), 0));
  for (const Node& n : nodes) {
    const Exact a = v[n.a], b = v[n.b];
    const double error = std::max(a.error, b.error) + 1, size = a.size + b.size;
    switch (n.kind) {
    case Node::Kind::Number:
      v.push_back(exact(double(float(n.number)), std::fabs(n.number), 1));
      break;
    case Node::Kind::Add:
      v.push_back(exact(a.value + b.value, size, error));
      break;
    case Node::Kind::Mul:
      v.push_back(exact(a.value * b.value, a.size * b.size, a.error + b.error + 1));
      break;
    case Node::Kind::Max:
      v.push_back(exact(std::max(a.value, b.value), size, error));
      break;
    case Node::Kind::Tanh:
      v.push_back(exact(std::tanh(a.value), a.size + 1, a.error + 1));
      break;
    case Node::Kind::Select:
      v.push_back(exact(v[0].value < v[1].value ? a.value : b.value, size, error));
      break;
    }
  }
  return {v.end() - std::ptrdiff_t(outputs), v.end()};
}

TEST(FactoredSums, OfRandomBodiesAreWhatTheyWere) {
  Random random{std::mt19937_64(11)};
  int improved = 0;
  const int bodies = 400 * test::rounds();
  for (int i = 0; i < bodies; ++i) {
    const std::vector<Node> nodes = random_body(random);
    const std::size_t outputs = 1 + random.below(2);
    const KernelProgram written = rounded_program(
        kInputs, kScalars, int(outputs), random.one_of(2) ? DType::BF16 : DType::F16,
        [&](const RoundedBody& f) { return values_of(f, nodes, outputs); });
    const KernelProgram factored = kernel::with_factored_sums(written);
    ASSERT_NO_THROW(verify(factored)) << print(written) << print(factored);
    const Operations before = operations_of(written), after = operations_of(factored);
    if (kernel::rounded_uses(written).tangents.empty()) {
      ASSERT_LE(after.adds + after.muls + after.fmas, before.adds + before.muls + before.fmas)
          << print(written) << print(factored);
    }
    improved += !(before == after);

    std::uniform_real_distribution<float> any(-2, 2);
    std::vector<std::vector<float>> inputs(kInputs, std::vector<float>(kElements));
    for (auto& input : inputs)
      for (float& x : input)
        x = any(random.engine);
    const float scalars[kScalars] = {any(random.engine), any(random.engine)};
    const auto results = run_program(without_rounding(factored), inputs, scalars);
    for (std::size_t e = 0; e < kElements; ++e) {
      const double leaves[kLeaves] = {inputs[0][e], inputs[1][e], inputs[2][e], scalars[0],
                                      scalars[1]};
      const std::vector<Exact> right = exact_values(nodes, leaves, outputs);
      for (std::size_t o = 0; o < outputs; ++o)
        if (right[o].size < 1e30) {
          const double most = (2 * right[o].error + 8) * 0x1p-24 * right[o].size + 1e-36;
          ASSERT_NEAR(results[o][e], right[o].value, most) << print(written) << print(factored);
        }
    }
  }
  EXPECT_GT(improved, bodies / 8);
}

} // namespace
} // namespace egret::testing

#include "support/recurrent_graphs.h"

#include "egret/autodiff.h"

#include <fmt/format.h>

#include <vector>

namespace egret::testing {

using ir::Graph;
using ir::NodeId;

namespace {

class Unrolled {
public:
  explicit Unrolled(const RecurrentProgram& program) : p_(program) {}

  Graph run() {
    const std::int64_t n = gates();
    const std::int64_t given = p_.inputs > 0 ? p_.inputs : n * p_.width;
    inputs_ = g_.input("inputs", p_.dtype, {p_.batch, p_.steps, given});
    if (p_.inputs > 0)
      input_weights_ = g_.input("input_weights", p_.dtype, {n * p_.width, p_.inputs});
    weights_ = weights("weights", n);
    if (p_.kind == RecurrentKind::ResetInside)
      inner_ = weights("inner", 1);
    NodeId h = g_.input("h", p_.dtype, state()), c = h;
    if (p_.kind == RecurrentKind::Lstm || p_.kind == RecurrentKind::Peephole)
      c = g_.input("c", p_.dtype, state());
    if (p_.kind == RecurrentKind::Peephole)
      peepholes_ = g_.input("peepholes", p_.dtype, {3, p_.width});
    for (std::int64_t t = 0; t < p_.steps; ++t) {
      step(t, h, c);
      if (p_.every_step || t + 1 == p_.steps)
        g_.outputs.push_back(h);
    }
    if (p_.gradient) {
      const NodeId seed = g_.broadcast(g_.constant(p_.dtype, 1), state());
      const std::vector<NodeId> results{h}, seeds{seed}, wrt{weights_};
      for (const NodeId grad : gradients(g_, results, seeds, wrt))
        g_.outputs.push_back(grad);
    }
    return std::move(g_);
  }

private:
  std::int64_t gates() const {
    switch (p_.kind) {
    case RecurrentKind::Lstm:
    case RecurrentKind::Peephole:
      return 4;
    case RecurrentKind::Gru:
    case RecurrentKind::ResetInside:
      return 3;
    default:
      return 1;
    }
  }
  Shape state() const { return {p_.batch, p_.width}; }

  NodeId weights(const std::string& name, std::int64_t n) {
    if (p_.kind == RecurrentKind::ResetInside && name == "weights")
      n = 2;
    const std::int64_t columns = n * p_.width;
    if (!p_.weights_transposed)
      return g_.input(name, p_.dtype, {columns, p_.width});
    return g_.permute(g_.input(name, p_.dtype, {p_.width, columns}), {1, 0});
  }

  NodeId product(NodeId x, NodeId w) {
    const Expr columns = g_[w].shape[0];
    const Expr depth = g_[w].shape[1];
    const Shape box{p_.batch, columns, depth};
    const NodeId left = g_.expand(g_.reshape(x, {p_.batch, 1, depth}), box),
                 right = g_.expand(g_.reshape(w, {1, columns, depth}), box);
    return g_.reduce(Op::ReduceSum, g_.binary(Op::Mul, left, right), {2});
  }
  NodeId add(NodeId a, NodeId b) { return g_.binary(Op::Add, a, b); }
  NodeId mul(NodeId a, NodeId b) { return g_.binary(Op::Mul, a, b); }
  NodeId sigmoid(NodeId a) { return g_.unary(Op::Sigmoid, a); }
  NodeId tanh(NodeId a) { return g_.unary(Op::Tanh, a); }
  NodeId gate(NodeId all, std::int64_t i) {
    return g_.shrink(all, {0, i * p_.width}, {p_.batch, (i + 1) * p_.width});
  }
  /// c times a row of the peepholes.
  NodeId peep(NodeId c, std::int64_t i) {
    const NodeId row = g_.shrink(peepholes_, {i, 0}, {i + 1, p_.width});
    return mul(c, g_.expand(row, state()));
  }

  void step(std::int64_t t, NodeId& h, NodeId& c) {
    const Expr given = g_[inputs_].shape[2];
    NodeId x =
        g_.reshape(g_.shrink(inputs_, {0, t, 0}, {p_.batch, t + 1, given}), {p_.batch, given});
    if (p_.inputs > 0)
      x = product(x, input_weights_);
    switch (p_.kind) {
    case RecurrentKind::Tanh:
      h = tanh(add(x, product(h, weights_)));
      return;
    case RecurrentKind::Mixing: {
      const NodeId rows = g_.flip(h, {0});
      h = tanh(add(x, product(rows, weights_)));
      return;
    }
    case RecurrentKind::Lstm: {
      const NodeId all = add(x, product(h, weights_));
      c = add(mul(sigmoid(gate(all, 1)), c), mul(sigmoid(gate(all, 0)), tanh(gate(all, 2))));
      h = mul(sigmoid(gate(all, 3)), tanh(c));
      return;
    }
    case RecurrentKind::Peephole: {
      const NodeId all = add(x, product(h, weights_));
      const NodeId kept = mul(sigmoid(add(gate(all, 1), peep(c, 0))), c),
                   fresh = mul(sigmoid(add(gate(all, 0), peep(c, 1))), tanh(gate(all, 2)));
      c = add(kept, fresh);
      h = mul(sigmoid(add(gate(all, 3), peep(c, 2))), tanh(c));
      return;
    }
    case RecurrentKind::Gru: {
      const NodeId all = product(h, weights_);
      const NodeId r = sigmoid(add(gate(x, 0), gate(all, 0))),
                   z = sigmoid(add(gate(x, 1), gate(all, 1))),
                   fresh = tanh(add(gate(x, 2), mul(r, gate(all, 2))));
      h = add(fresh, mul(z, add(h, mul(fresh, g_.broadcast(g_.constant(p_.dtype, -1), state())))));
      return;
    }
    case RecurrentKind::ResetInside: {
      const NodeId all = product(h, weights_);
      const NodeId r = sigmoid(add(gate(x, 0), gate(all, 0))),
                   z = sigmoid(add(gate(x, 1), gate(all, 1))),
                   fresh = tanh(add(gate(x, 2), product(mul(r, h), inner_)));
      h = add(fresh, mul(z, add(h, mul(fresh, g_.broadcast(g_.constant(p_.dtype, -1), state())))));
      return;
    }
    }
  }

  const RecurrentProgram& p_;
  Graph g_;
  NodeId inputs_ = 0, weights_ = 0, input_weights_ = 0, inner_ = 0, peepholes_ = 0;
};

} // namespace

std::string RecurrentProgram::name() const {
  constexpr const char* kNames[] = {"tanh", "lstm", "peephole", "gru", "reset_inside", "mixing"};
  return fmt::format("{} of {} steps, batch {}, width {}, {}{}{}{}{}",
                     kNames[static_cast<int>(kind)], steps, batch, width, name_of(dtype),
                     inputs > 0 ? fmt::format(", inputs of {}", inputs) : "",
                     every_step ? ", every step" : "", weights_transposed ? ", transposed" : "",
                     gradient ? ", gradient" : "");
}

Graph graph_of(const RecurrentProgram& program) {
  return Unrolled(program).run();
}

} // namespace egret::testing

#include "tensor/relative.h"

#include "runtime/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace egret::detail {
namespace {

std::uint64_t class_of(std::int64_t size) {
  return size == 0 ? 0 : size == 1 ? 1 : 2;
}

// --- the parts of an operation that are numbers, in a fixed order

enum class Part : std::uint8_t { Constant, Begin, Length, Size, Amount };

// Visits the numbers of an operation: visit(part, axis, value). Sizes are those of its attributes;
// a slice has begins and lengths.
template <class F>
void for_each_number(const Node& node, F&& visit) {
  const ir::Attrs& attrs = node.form.attrs;
  if (node.form.op == Op::Constant) {
    visit(Part::Constant, 0, static_cast<std::int64_t>(attrs.value.bits));
  } else if (node.form.op == Op::Shrink) {
    for (std::size_t i = 0; i < attrs.shape.size(); ++i) {
      visit(Part::Begin, i, attrs.before[i].value());
      visit(Part::Length, i, attrs.shape[i].value() - attrs.before[i].value());
    }
  } else {
    for (std::size_t i = 0; i < attrs.shape.size(); ++i)
      visit(Part::Size, i, attrs.shape[i].value());
    for (std::size_t i = 0; i < attrs.before.size(); ++i)
      visit(Part::Amount, i, attrs.before[i].value());
    for (std::size_t i = 0; i < attrs.after.size(); ++i)
      visit(Part::Amount, attrs.before.size() + i, attrs.after[i].value());
  }
}

std::int64_t value_in(const Expr& e, std::span<const RelativePlan::Symbol> symbols,
                      std::span<const std::int64_t> numbers) {
  if (e.is_constant())
    return e.value();
  return evaluate(e, [&](const Expr& variable) {
    for (const RelativePlan::Symbol& s : symbols)
      if (s.symbol == variable)
        return numbers[s.at];
    return std::numeric_limits<std::int64_t>::min();
  });
}

// One attempt to express the numbers of some walks.
class Generalization {
public:
  Generalization(const Walk& walk, std::span<const std::vector<std::int64_t>> samples,
                 RelativePlan& plan)
      : walk_(walk), samples_(samples), plan_(plan) {}

  ir::Graph graph() {
    plan_.numbers.clear();
    plan_.scalars.clear();
    plan_.symbols.clear();
    make_leaves();
    for (const Node* node : walk_.order) {
      ids_.push_back(made(*node));
      for (const Expr& dim : graph_[ids_.back()].shape)
        know(dim);
    }
    for (const NodePtr& output : walk_.outputs)
      graph_.outputs.push_back(ids_[output->place]);
    for (const auto& [at, id] : scalar_ids_)
      plan_.scalars.push_back(at);
    for (const RelativePlan::Symbol& s : plan_.symbols)
      graph_.input(s.symbol.str(), DType::U8, {s.symbol});
    return std::move(graph_);
  }

private:
  using Values = std::vector<std::int64_t>; // of one number, by sample

  Values values_at(std::size_t at) const {
    Values values;
    for (const auto& sample : samples_)
      values.push_back(sample[at]);
    return values;
  }
  static bool same(const Values& values) {
    return std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) == values.end();
  }
  Values values_of(const Expr& e) const {
    Values values;
    for (const auto& sample : samples_)
      values.push_back(value_in(e, plan_.symbols, sample));
    return values;
  }
  void know(const Expr& dim) {
    if (!dim.is_constant() && std::find(known_.begin(), known_.end(), dim) == known_.end())
      known_.push_back(dim);
  }

  // An expression of what is known that has these values in all samples.
  std::optional<Expr> expressed(const Values& values) const {
    for (const Expr& e : known_)
      if (values_of(e) == values)
        return e;
    for (const Expr& e : known_) { // a multiple, or so much more or less
      const Values have = values_of(e);
      const std::int64_t factor = have[0] != 0 ? values[0] / have[0] : 0;
      bool multiple = factor > 1, moved = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        multiple = multiple && have[i] * factor == values[i];
        moved = moved && values[i] - have[i] == values[0] - have[0];
      }
      if (multiple)
        return e * factor;
      if (moved)
        return e + (values[0] - have[0]);
    }
    return std::nullopt;
  }

  // A new symbol. Its largest value leaves room above what was met, and its products stay small.
  Expr symbol(std::size_t at, const Values& values, std::int64_t least,
              std::optional<std::int64_t> most = {}) {
    const auto met = static_cast<std::uint64_t>(*std::max_element(values.begin(), values.end()));
    const auto room = static_cast<std::int64_t>(std::bit_ceil(std::max<std::uint64_t>(met, 16)) * 4);
    const bool wide = !most && std::all_of(values.begin(), values.end(),
                                           [](std::int64_t value) { return value % 16 == 0; });
    const Expr made = Expr::symbol(
        fmt::format("lazy{}.{}.{}.{}", plan_.symbols.size(), least, most.value_or(room), wide),
        wide ? 16 : least, most.value_or(room), wide ? 16 : 1);
    plan_.symbols.push_back({made, at});
    return made;
  }

  // The next number as an expression: its constant, what is known, or a new symbol.
  Expr next(std::int64_t least, std::optional<std::int64_t> most = {}) {
    const std::size_t at = plan_.numbers.size();
    const Values values = values_at(at);
    Expr e = values[0];
    if (!same(values)) {
      auto found = expressed(values);
      e = found ? *found : symbol(at, values, least, most);
      know(e);
    }
    plan_.numbers.emplace_back(e);
    return e;
  }

  void make_leaves() {
    std::vector<Shape> shapes;
    for (const NodePtr& leaf : walk_.leaves) {
      Shape shape;
      for (std::size_t i = 0; i < leaf->form.shape.size(); ++i)
        shape.push_back(next(2));
      const bool by_value = leaf->kind == Node::Kind::Number || leaf->form.attrs.by_value;
      leaves_.push_back(graph_.input(fmt::format("{}{}", by_value ? "s" : "x", leaves_.size()),
                                     leaf->form.dtype, std::move(shape), by_value));
    }
    // Constants that differ are inputs behind the leaves.
    std::size_t at = plan_.numbers.size();
    for (const Node* node : walk_.order)
      for_each_number(*node, [&](Part part, std::size_t, std::int64_t) {
        if (part == Part::Constant && !same(values_at(at)))
          scalar_ids_.emplace_back(
              at, graph_.input(fmt::format("c{}", at), node->form.dtype, {}, true));
        ++at;
      });
  }

  // The sizes that a reshape may make of its operand's: products of neighbours.
  void know_products(const Shape& shape) {
    for (std::size_t first = 0; first < shape.size(); ++first) {
      Expr product = shape[first];
      for (std::size_t last = first + 1; last < shape.size(); ++last)
        know(product = product * shape[last]);
    }
  }

  ir::NodeId made(const Node& node) {
    std::vector<ir::NodeId> inputs;
    for (const NodePtr& input : node.inputs)
      inputs.push_back(input->place & kLeafBit ? leaves_[input->place & ~kLeafBit]
                                               : ids_[input->place]);
    if (node.form.op == Op::Constant)
      for (const auto& [at, id] : scalar_ids_)
        if (at == plan_.numbers.size()) {
          plan_.numbers.emplace_back(std::nullopt);
          return id;
        }
    ir::Attrs attrs = node.form.attrs;
    const Shape from = inputs.empty() ? Shape() : graph_[inputs[0]].shape;
    if (node.form.op == Op::Reshape)
      know_products(from);
    for_each_number(node, [&](Part part, std::size_t i, std::int64_t value) {
      switch (part) {
      case Part::Constant:
        plan_.numbers.emplace_back(value);
        break;
      case Part::Begin: {
        const std::int64_t room = value + walk_room(from, i, plan_.numbers.size());
        attrs.before[i] = next(0, from[i].is_constant() ? std::optional(room) : std::nullopt);
        break;
      }
      case Part::Length:
        attrs.shape[i] = attrs.before[i] + next(2);
        break;
      case Part::Size:
        attrs.shape[i] = next(2);
        break;
      case Part::Amount:
        (i < attrs.before.size() ? attrs.before[i] : attrs.after[i - attrs.before.size()]) = next(0);
        break;
      }
    });
    return graph_.add(node.form.op, inputs, std::move(attrs));
  }

  // How much further than its begin, which is number `at`, a slice of fixed size may begin.
  std::int64_t walk_room(const Shape& from, std::size_t axis, std::size_t at) const {
    const std::int64_t begin = samples_.back()[at], length = samples_.back()[at + 1];
    return from[axis].is_constant() ? from[axis].value() - length - begin : 0;
  }

  const Walk& walk_;
  std::span<const std::vector<std::int64_t>> samples_;
  RelativePlan& plan_;
  ir::Graph graph_;
  std::vector<ir::NodeId> leaves_, ids_;
  std::vector<std::pair<std::size_t, ir::NodeId>> scalar_ids_;
  std::vector<Expr> known_;
};

} // namespace

void describe(Walk& w) {
  auto& words = w.signature;
  for (const NodePtr& leaf : w.leaves) {
    words.push_back(0xffu | static_cast<std::uint64_t>(leaf->form.dtype) << 8 |
                    static_cast<std::uint64_t>(leaf->kind == Node::Kind::Number) << 16 |
                    static_cast<std::uint64_t>(leaf->form.shape.size()) << 32);
    for (const Expr& dim : leaf->form.shape) {
      words.push_back(class_of(dim.value()));
      w.numbers.push_back(dim.value());
    }
  }
  for (const Node* node : w.order) {
    const ir::Attrs& attrs = node->form.attrs;
    words.push_back(static_cast<std::uint64_t>(node->form.op) |
                    static_cast<std::uint64_t>(node->form.dtype) << 8 |
                    static_cast<std::uint64_t>(attrs.dtype) << 16 |
                    static_cast<std::uint64_t>(attrs.value.dtype) << 24 |
                    static_cast<std::uint64_t>(node->inputs.size()) << 32 |
                    static_cast<std::uint64_t>(attrs.axes.size()) << 36 |
                    static_cast<std::uint64_t>(attrs.shape.size()) << 44 |
                    static_cast<std::uint64_t>(attrs.before.size()) << 52);
    for (const NodePtr& input : node->inputs)
      words.push_back(input->place);
    for (std::int64_t axis : attrs.axes)
      words.push_back(static_cast<std::uint64_t>(axis));
    if (node->form.op != Op::Constant)
      words.push_back(attrs.value.bits);
    for_each_number(*node, [&](Part part, std::size_t, std::int64_t value) {
      w.numbers.push_back(value);
      if (part == Part::Length || part == Part::Size)
        words.push_back(class_of(value));
      else if (part == Part::Amount)
        words.push_back(value != 0);
    });
  }
  words.push_back(~std::uint64_t{0});
  for (const NodePtr& output : w.outputs)
    words.push_back(output->place);
}

std::size_t numbers_of(const Node& node) {
  std::size_t count = 0;
  for_each_number(node, [&](Part, std::size_t, std::int64_t) { ++count; });
  return count;
}

bool RelativePlan::fits(std::span<const std::int64_t> given) const {
  for (const Symbol& s : symbols) {
    const std::int64_t value = given[s.at];
    if (value < s.symbol.lower() || value > s.symbol.upper() || value % s.symbol.divisor() != 0)
      return false;
  }
  for (std::size_t i = 0; i < given.size(); ++i)
    if (numbers[i] && value_in(*numbers[i], symbols, given) != given[i])
      return false;
  return true;
}

std::optional<ir::Graph> generalized(const Walk& walk,
                                     std::span<const std::vector<std::int64_t>> samples,
                                     RelativePlan& plan) {
  try {
    ir::Graph graph = Generalization(walk, samples, plan).graph();
    for (const auto& sample : samples)
      if (!plan.fits(sample))
        return std::nullopt;
    return graph;
  } catch (const Error&) {
    return std::nullopt; // an operation does not take such sizes
  }
}

void add_inputs(const RelativePlan& plan, std::span<const std::int64_t> numbers,
                std::vector<Shape>& shapes, std::vector<runtime::RunInput>& inputs) {
  static const Shape kScalar;
  runtime::StoragePtr any; // nothing reads these inputs but their sizes
  for (const runtime::RunInput& input : inputs)
    if (input.storage)
      any = input.storage;
  for (std::size_t at : plan.scalars)
    inputs.push_back({nullptr, static_cast<std::uint64_t>(numbers[at]), &kScalar});
  if (!any && !plan.symbols.empty())
    any = runtime::Runtime::instance().allocate(1);
  shapes.reserve(plan.symbols.size());
  for (const RelativePlan::Symbol& s : plan.symbols) {
    shapes.push_back({Expr(numbers[s.at])});
    inputs.push_back({any, 0, &shapes.back()});
  }
}

} // namespace egret::detail

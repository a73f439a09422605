#include "tensor/relative.h"

#include "runtime/runtime.h"
#include "tensor/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

namespace egret::detail {
namespace {

using Numbers = std::vector<std::int64_t>;

// Sizes of one class may share a plan: 0 and 1 are other structures (nothing to do, broadcasting).
std::uint64_t class_of(std::int64_t size) {
  return size == 0 ? 0 : size == 1 ? 1 : 2;
}

// A size without symbols. The quick way is for the usual case.
std::int64_t integer(const Expr& e) {
  const ExprNode& node = e.node();
  return node.kind == ExprKind::Constant ? node.value : e.value();
}

// --- the parts of an operation that are numbers, in a fixed order

enum class Part : std::uint8_t { Constant, Begin, Length, Size, Amount };

// Visits the numbers of an operation: visit(part, axis, value). Sizes are those of its attributes;
// a slice has a begin and a length for each axis, padding all amounts before and then all behind.
template <class F>
void for_each_number(const Node& node, F&& visit) {
  const ir::Attrs& attrs = node.form.attrs;
  if (node.form.op == Op::Constant) {
    visit(Part::Constant, 0, static_cast<std::int64_t>(attrs.value.bits));
  } else if (node.form.op == Op::Shrink) {
    for (std::size_t i = 0; i < attrs.shape.size(); ++i) {
      visit(Part::Begin, i, integer(attrs.before[i]));
      visit(Part::Length, i, integer(attrs.shape[i]) - integer(attrs.before[i]));
    }
  } else {
    for (std::size_t i = 0; i < attrs.shape.size(); ++i)
      visit(Part::Size, i, integer(attrs.shape[i]));
    for (std::size_t i = 0; i < attrs.before.size(); ++i)
      visit(Part::Amount, i, integer(attrs.before[i]));
    for (std::size_t i = 0; i < attrs.after.size(); ++i)
      visit(Part::Amount, attrs.before.size() + i, integer(attrs.after[i]));
  }
}

std::size_t numbers_of(const Node& node) {
  std::size_t count = 0;
  for_each_number(node, [&](Part, std::size_t, std::int64_t) { ++count; });
  return count;
}

// What an expression of the plan's symbols is; nothing where it is none.
std::optional<std::int64_t> value_in(const Expr& e, std::span<const RelativePlan::Symbol> symbols,
                                     std::span<const std::int64_t> numbers) {
  if (e.is_constant())
    return e.value();
  for (const RelativePlan::Symbol& s : symbols)
    if (s.symbol == e)
      return numbers[s.at];
  try {
    return evaluate(e, [&](const Expr& variable) {
      for (const RelativePlan::Symbol& s : symbols)
        if (s.symbol == variable)
          return numbers[s.at];
      return std::numeric_limits<std::int64_t>::min();
    });
  } catch (const Error&) { // beyond 64 bits
    return std::nullopt;
  }
}

// --- the graph of several walks

class Generalization {
public:
  /// `near`: sizes may be as small as about the smallest sample only, so that what is cut from
  /// them leaves something.
  Generalization(const Walk& walk, std::span<const Numbers> samples, bool near, RelativePlan& plan)
      : walk_(walk), samples_(samples), near_(near), plan_(plan) {
    note_reshapes();
  }

  ir::Graph graph() {
    plan_.numbers.clear();
    plan_.scalars.clear();
    plan_.symbols.clear();
    plan_.has_sizes = false;
    add_leaves();
    for (const Node* node : walk_.order) {
      ids_.push_back(add(*node));
      for (const Expr& dim : graph_[ids_.back()].shape)
        know(dim);
    }
    for (const NodePtr& output : walk_.outputs)
      graph_.outputs.push_back(ids_[output->place]);
    note_sites(graph_, walk_, ids_);
    for (const auto& [at, id] : scalars_)
      plan_.scalars.push_back(at);
    for (const RelativePlan::Symbol& s : plan_.symbols)
      graph_.input(s.symbol.str(), DType::U8, {s.symbol});
    return std::move(graph_);
  }

private:
  using Values = std::vector<std::optional<std::int64_t>>; // of one number, by sample
  static constexpr std::size_t kMostKnown = 64;
  struct Reshape {
    std::size_t at, sizes; ///< the first of its sizes among the numbers, and how many
  };

  Values values_at(std::size_t at) const {
    Values values;
    for (const Numbers& sample : samples_)
      values.emplace_back(sample[at]);
    return values;
  }
  Values values_of(const Expr& e) const {
    Values values;
    for (const Numbers& sample : samples_)
      values.push_back(value_in(e, plan_.symbols, sample));
    return values;
  }
  static bool same(const Values& values) {
    return std::all_of(values.begin(), values.end(), [&](auto v) { return v == values[0]; });
  }
  bool differs(std::size_t at) const {
    return std::any_of(samples_.begin(), samples_.end(),
                       [&](const Numbers& sample) { return sample[at] != samples_[0][at]; });
  }

  // Expressions that another number may be equal to.
  void know(const Expr& e) {
    if (e.is_constant() || known_.size() >= kMostKnown ||
        std::any_of(known_.begin(), known_.end(), [&](const auto& k) { return k.first == e; }))
      return;
    known_.emplace_back(e, values_of(e));
  }

  // The simplest expression of what is known that has these values in all samples and is never
  // less than `least`: the same, a multiple, a sum or a difference with a constant, a sum or a
  // difference of two.
  std::optional<Expr> expressed(const Values& values, std::int64_t least) const {
    for (const auto& [e, have] : known_)
      if (have == values && e.lower() >= least)
        return e;
    const auto all = [&](auto&& holds) {
      for (std::size_t i = 0; i < values.size(); ++i)
        if (!holds(i))
          return false;
      return true;
    };
    const std::int64_t first = *values[0];
    for (const auto& [e, have] : known_) {
      const auto& own = have;
      if (!all([&](std::size_t i) { return own[i].has_value(); }))
        continue;
      const std::int64_t factor = *own[0] != 0 ? first / *own[0] : 0;
      std::optional<Expr> found;
      if (factor > 1 && all([&](std::size_t i) { return *own[i] * factor == *values[i]; }))
        found = e * factor;
      else if (all([&](std::size_t i) { return *values[i] - *own[i] == first - *own[0]; }))
        found = e + (first - *own[0]);
      else if (all([&](std::size_t i) { return *values[i] + *own[i] == first + *own[0]; }))
        found = Expr(first + *own[0]) - e;
      if (found && found->lower() >= least)
        return found;
    }
    for (const auto& [a, of_a] : known_)
      for (const auto& [b, of_b] : known_) {
        const auto &x = of_a, &y = of_b;
        if (!all([&](std::size_t i) { return x[i] && y[i]; }))
          continue;
        std::optional<Expr> found;
        if (all([&](std::size_t i) { return *x[i] + *y[i] == *values[i]; }))
          found = a + b;
        else if (all([&](std::size_t i) { return *x[i] - *y[i] == *values[i]; }))
          found = a - b;
        if (found && found->lower() >= least)
          return found;
      }
    return std::nullopt;
  }

  // Where the sizes of reshapes' results are among the numbers.
  void note_reshapes() {
    std::size_t at = 0;
    for (const NodePtr& leaf : walk_.leaves)
      at += leaf->form.shape.size();
    for (const Node* node : walk_.order) {
      if (node->form.op == Op::Reshape && node->form.attrs.shape.size() > 1)
        reshapes_.push_back({at, node->form.attrs.shape.size()});
      at += numbers_of(*node);
    }
  }

  // The number as the product of neighbouring sizes that a reshape makes later, of as many as there
  // are: a size that is split into axes, such as that of random numbers drawn in one line. The
  // factors are all above 1, hence smaller than the product.
  std::optional<Expr> factored(const Values& values) {
    std::vector<std::size_t> best;
    for (const Reshape& reshape : reshapes_)
      for (std::size_t first = 0; first + 1 < reshape.sizes; ++first) {
        std::vector<std::size_t> factors;
        std::vector<std::int64_t> products(samples_.size(), 1);
        for (std::size_t i = first; i < reshape.sizes; ++i) {
          const std::size_t at = reshape.at + i;
          bool within = true;
          for (std::size_t k = 0; k < samples_.size() && within; ++k)
            within = !__builtin_mul_overflow(products[k], samples_[k][at], &products[k]) &&
                     products[k] <= *values[k];
          if (!within)
            break;
          if (class_of(samples_[0][at]) >
              1) // in one structure, sizes of 1 stand in the same places
            factors.push_back(at);
          if (factors.size() > std::max<std::size_t>(best.size(), 1) &&
              std::equal(products.begin(), products.end(), values.begin()))
            best = factors;
        }
      }
    if (best.empty())
      return std::nullopt;
    Expr product = 1;
    for (const std::size_t at : best)
      product = product * number(at, 2);
    know(product);
    return product;
  }

  // A new symbol from `least` to `most`. Without the latter its largest value leaves room above
  // what was met, and not more, so that indices of few bits suffice where they did.
  Expr symbol(std::size_t at, const Values& values, std::int64_t least,
              std::optional<std::int64_t> most) {
    constexpr std::int64_t kVector = 16; // elements of the widest vector
    std::int64_t met = 0, smallest = *values[0];
    bool vectors = least > 0;
    for (const auto& value : values) {
      met = std::max(met, *value);
      smallest = std::min(smallest, *value);
      vectors = vectors && *value % kVector == 0;
    }
    if (near_ && least > 0)
      least = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(smallest)));
    constexpr std::int64_t kFar = std::int64_t{1} << 48;
    std::int64_t room = kFar;
    if (met < kFar / 4)
      room = 4 * static_cast<std::int64_t>(
                     std::bit_ceil(static_cast<std::uint64_t>(std::max(met, kVector))));
    room = most.value_or(room);
    const std::int64_t divisor = vectors ? kVector : 1;
    if (vectors) {
      least = (least + kVector - 1) / kVector * kVector;
      room = room / kVector * kVector;
    }
    const Expr made =
        Expr::symbol(fmt::format("lazy{}_{}_{}_{}", plan_.symbols.size(), least, room, divisor),
                     least, room, divisor);
    plan_.symbols.push_back({made, at});
    plan_.has_sizes = plan_.has_sizes || least > 0;
    know(made);
    return made;
  }

  // The number at `at` as an expression: its constant, what is known, of a `line` of numbers a
  // product of later sizes, or a new symbol. Arrays that are read keep sizes of their own: kernels
  // of one symbol fuse better than those of products.
  Expr number(std::size_t at, std::int64_t least, std::optional<std::int64_t> most = {},
              bool line = false) {
    const Values values = values_at(at);
    if (same(values))
      return Expr(*values[0]);
    if (auto found = expressed(values, std::min<std::int64_t>(least, 1)))
      return *found;
    if (line)
      if (auto product = factored(values))
        return *product;
    return symbol(at, values, least, most);
  }
  Expr next(std::int64_t least, bool line = false) {
    const Expr e = number(plan_.numbers.size(), least, {}, line);
    plan_.numbers.emplace_back(e);
    return e;
  }

  void add_leaves() {
    for (const NodePtr& leaf : walk_.leaves) {
      Shape shape;
      for (std::size_t i = 0; i < leaf->form.shape.size(); ++i)
        shape.push_back(next(2));
      const bool by_value = leaf->kind == Node::Kind::Number || leaf->by_value;
      leaves_.push_back(graph_.input(fmt::format("{}{}", by_value ? "s" : "x", leaves_.size()),
                                     leaf->form.dtype, std::move(shape), by_value));
    }
    // Constants that differ are inputs behind the leaves.
    std::size_t at = plan_.numbers.size();
    for (const Node* node : walk_.order)
      for_each_number(*node, [&](Part part, std::size_t, std::int64_t) {
        if (part == Part::Constant && differs(at))
          scalars_.emplace(at, graph_.input(fmt::format("c{}", at), node->form.dtype, {}, true));
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

  ir::NodeId add(const Node& node) {
    std::vector<ir::NodeId> inputs;
    for (const NodePtr& input : node.inputs)
      inputs.push_back(input->place & kLeafBit ? leaves_[input->place & ~kLeafBit]
                                               : ids_[input->place]);
    const Shape from = inputs.empty() ? Shape() : graph_[inputs[0]].shape;
    ir::Attrs attrs = node.form.attrs;
    if (node.form.op == Op::Constant) {
      if (const auto passed = scalars_.find(plan_.numbers.size()); passed != scalars_.end()) {
        plan_.numbers.emplace_back(std::nullopt);
        return passed->second;
      }
      plan_.numbers.emplace_back(Expr(static_cast<std::int64_t>(attrs.value.bits)));
    } else if (node.form.op == Op::Shrink) {
      for (std::size_t axis = 0; axis < from.size(); ++axis)
        bound(from[axis], attrs.before[axis], attrs.shape[axis]);
    } else {
      if (node.form.op == Op::Reshape)
        know_products(from);
      for (Expr& size : attrs.shape)
        size = next(2, node.form.op == Op::Iota || node.form.op == Op::Expand);
      for (Expr& amount : attrs.before)
        amount = next(0);
      for (Expr& amount : attrs.after)
        amount = next(0);
    }
    return graph_.add(node.form.op, inputs, std::move(attrs));
  }

  // Begin and end of a slice of an axis, which must be known to lie inside of it.
  void bound(const Expr& size, Expr& begin, Expr& end) {
    const std::size_t at = plan_.numbers.size();
    plan_.numbers.resize(at + 2);
    const auto inside = size.constant();
    std::optional<std::int64_t> most_long = inside, most_begin = inside;
    if (inside && !differs(at))
      most_long = *inside - samples_[0][at];
    const Expr length = number(at + 1, 2, most_long);
    if (inside && length.is_constant())
      most_begin = *inside - length.value();
    begin = number(at, 0, most_begin);
    if (!proves_less_equal(begin + length, size))
      begin = min(begin, size - length);
    end = begin + length;
    plan_.numbers[at] = begin;
    plan_.numbers[at + 1] = length;
  }

  const Walk& walk_;
  std::span<const Numbers> samples_;
  bool near_;
  RelativePlan& plan_;
  ir::Graph graph_;
  std::vector<ir::NodeId> leaves_, ids_;
  std::map<std::size_t, ir::NodeId> scalars_; // by number
  std::vector<std::pair<Expr, Values>> known_;
  std::vector<Reshape> reshapes_;
};

} // namespace

void describe(Walk& w) {
  auto& words = w.signature;
  words.reserve(4 * w.leaves.size() + 8 * w.order.size() + w.outputs.size() + 1);
  w.numbers.reserve(2 * w.leaves.size() + 4 * w.order.size());
  for (const NodePtr& leaf : w.leaves) {
    words.push_back(0xffu | static_cast<std::uint64_t>(leaf->form.dtype) << 8 |
                    static_cast<std::uint64_t>(leaf->kind == Node::Kind::Number) << 16 |
                    static_cast<std::uint64_t>(leaf->form.shape.size()) << 32);
    for (const Expr& dim : leaf->form.shape) {
      const std::int64_t size = integer(dim);
      words.push_back(class_of(size));
      w.numbers.push_back(size);
    }
  }
  for (const Node* node : w.order) {
    const ir::Attrs& attrs = node->form.attrs;
    words.push_back(static_cast<std::uint64_t>(node->form.op) |
                    static_cast<std::uint64_t>(node->form.dtype) << 8 |
                    static_cast<std::uint64_t>(attrs.dtype) << 16 |
                    static_cast<std::uint64_t>(attrs.value.dtype) << 24 |
                    static_cast<std::uint64_t>(node->inputs.size()) << 32 |
                    static_cast<std::uint64_t>(attrs.axes.size()) << 40 |
                    static_cast<std::uint64_t>(attrs.shape.size()) << 48 |
                    static_cast<std::uint64_t>(attrs.before.size()) << 56);
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
  words.push_back(runtime::Runtime::instance().generation());
  for (const NodePtr& output : w.outputs)
    words.push_back(output->place);
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

std::vector<Numbers> with_moved_slices(const Walk& walk) {
  constexpr std::size_t kMost = 16;
  std::size_t at = 0;
  for (const NodePtr& leaf : walk.leaves)
    at += leaf->form.shape.size();
  std::vector<int> slices(walk.leaves.size(), 0); // of each leaf
  const auto sliced = [](const Node& node) {
    return node.form.op == Op::Shrink && (node.inputs[0]->place & kLeafBit);
  };
  for (const Node* node : walk.order)
    if (sliced(*node))
      ++slices[node->inputs[0]->place & ~kLeafBit];
  std::vector<Numbers> moved;
  for (const Node* node : walk.order) {
    if (sliced(*node) && slices[node->inputs[0]->place & ~kLeafBit] == 1)
      for (std::size_t axis = 0; axis < node->form.shape.size() && moved.size() < kMost; ++axis) {
        const std::int64_t begin = walk.numbers[at + 2 * axis],
                           length = walk.numbers[at + 2 * axis + 1];
        if (length == 0 || length == node->inputs[0]->form.shape[axis].value())
          continue;
        moved.push_back(walk.numbers);
        moved.back()[at + 2 * axis] = begin > 0 ? begin - 1 : begin + 1;
      }
    at += numbers_of(*node);
  }
  return moved;
}

std::optional<ir::Graph> generalized(const Walk& walk, std::span<const Numbers> samples,
                                     RelativePlan& plan) {
  for (const bool near : {false, true}) {
    try {
      ir::Graph graph = Generalization(walk, samples, near, plan).graph();
      if (std::all_of(samples.begin(), samples.end(),
                      [&](const Numbers& sample) { return plan.fits(sample); }))
        return graph;
    } catch (const Error&) { // an operation does not take such sizes
    }
  }
  return std::nullopt;
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

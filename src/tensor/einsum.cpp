// Products that name their axes, and what is made of them.
#include "support/fail.h"
#include "tensor/ops.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace egret {

using namespace detail;

namespace {

// Axes are named by numbers: letters by their codes, those of "..." by negative ones, counted from
// the last.
using Names = std::vector<int>;

struct Named {
  Tensor a;
  Names names;
};

bool has(const Names& names, int name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Every name once: a name that stands twice is a diagonal.
Named distinct(Named x) {
  for (std::size_t i = 0; i < x.names.size(); ++i)
    for (std::size_t j = i + 1; j < x.names.size(); ++j)
      if (x.names[i] == x.names[j]) {
        const auto p = static_cast<std::int64_t>(i), q = static_cast<std::int64_t>(j);
        x.a = diagonal(x.a, 0, p, q); // the diagonal becomes the last axis
        const int name = x.names[i];
        x.names.erase(x.names.begin() + q);
        x.names.erase(x.names.begin() + p);
        x.names.push_back(name);
        return distinct(std::move(x));
      }
  return x;
}

// The operand with its axes in the order of `names`, those that it lacks of size 1.
Tensor spread(const Named& x, const Names& names) {
  std::vector<std::int64_t> order;
  Shape shape;
  for (int name : names) {
    const auto at = std::find(x.names.begin(), x.names.end(), name);
    shape.push_back(at == x.names.end()
                        ? Expr(1)
                        : x.a.shape()[static_cast<std::size_t>(at - x.names.begin())]);
    if (at != x.names.end())
      order.push_back(at - x.names.begin());
  }
  return reshape(permute(x.a, order), shape);
}

Named summed(Named x, const Names& kept, const char* who) {
  std::vector<std::int64_t> axes;
  Names names;
  for (std::size_t i = 0; i < x.names.size(); ++i)
    if (has(kept, x.names[i]))
      names.push_back(x.names[i]);
    else
      axes.push_back(static_cast<std::int64_t>(i));
  return {reduce(Op::ReduceSum, x.a, axes, false, who), names};
}

// The product of two, its axes those of both, summed over the names that are not needed.
Named multiplied(const Named& a, const Named& b, const Names& needed, const char* who) {
  Names box = a.names;
  for (int name : b.names)
    if (!has(box, name))
      box.push_back(name);
  // What is summed stands last, as in a matrix product.
  std::stable_partition(box.begin(), box.end(), [&](int name) { return has(needed, name); });
  const Tensor x = spread(a, box), y = spread(b, box);
  const Shape shape = broadcast_shapes(x.shape(), y.shape(), who);
  return summed({binary(Op::Mul, detail::broadcast_to(x, shape, who),
                        detail::broadcast_to(y, shape, who), who),
                 box},
                needed, who);
}

// Products from left to right.
Named in_turn(const std::vector<Named>& operands, const Names& result, const char* who) {
  Named total = operands[0];
  for (std::size_t i = 1; i < operands.size(); ++i) {
    Names needed = result;
    for (std::size_t j = i + 1; j < operands.size(); ++j)
      needed.insert(needed.end(), operands[j].names.begin(), operands[j].names.end());
    total = multiplied(total, operands[i], needed, who);
  }
  return total;
}

// In which order a product of several operands takes the fewest multiplications: the best of all
// binary trees by dynamic programming over sets of operands (Lam, Sadayappan and Wenger 1997), from
// left to right where no other order is better. Sets of operands and of names are bits.
class Order {
public:
  static constexpr std::size_t kMostOperands = 8, kMostNames = 64;

  Order(const std::vector<Named>& operands, const Names& result, const char* who)
      : operands_(operands), who_(who) {
    for (const Named& x : operands)
      for (std::size_t i = 0; i < x.names.size(); ++i) {
        const auto at = std::find(names_.begin(), names_.end(), x.names[i]) - names_.begin();
        if (at == std::ptrdiff_t(names_.size())) {
          names_.push_back(x.names[i]);
          sizes_.push_back(1);
        }
        const auto size = x.a.shape()[i].constant();
        sizes_[std::size_t(at)] =
            std::max(sizes_[std::size_t(at)], double(size.value_or(kUnknownSize)));
      }
    for (const Named& x : operands)
      of_operand_.push_back(bits(x.names));
    of_result_ = bits(result);
  }
  bool fits() const { return operands_.size() <= kMostOperands && names_.size() <= kMostNames; }

  // By sets from small to large, as a part's number is below the whole's.
  Named run() {
    const Bits all = (Bits(1) << operands_.size()) - 1;
    left_.assign(all + 1, 0);
    std::vector<Bits> kept(all + 1, 0); // names of a set's product
    std::vector<double> least(all + 1, 0);
    for (Bits set = 1; set <= all; ++set) {
      kept[set] = std::has_single_bit(set) ? of_operand_[std::size_t(std::countr_zero(set))]
                                           : united(set) & needed(set);
      if (std::has_single_bit(set))
        continue;
      const Bits last = std::bit_floor(set), first = set & -set;
      const auto consider = [&](Bits part) {
        const double takes =
            least[part] + least[set ^ part] + product_of_sizes(kept[part] | kept[set ^ part]);
        if (left_[set] == 0 || takes < least[set]) {
          least[set] = takes;
          left_[set] = part;
        }
      };
      consider(set ^ last); // from left to right
      for (Bits part = (set - 1) & set; part > 0; part = (part - 1) & set)
        if ((part & first) != 0)
          consider(part);
    }
    return product(all);
  }

private:
  using Bits = std::uint64_t;
  static constexpr std::int64_t kUnknownSize = 64; // of an axis that is known at run time

  Bits bits(const Names& names) const {
    Bits all = 0;
    for (std::size_t i = 0; i < names_.size() && i < kMostNames; ++i)
      if (has(names, names_[i]))
        all |= Bits(1) << i;
    return all;
  }
  Bits united(Bits set) const {
    Bits names = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i)
      if (set >> i & 1)
        names |= of_operand_[i];
    return names;
  }
  // What others than a set's operands have, or the result.
  Bits needed(Bits set) const { return of_result_ | united(~set); }
  double product_of_sizes(Bits names) const {
    double product = 1;
    for (; names != 0; names &= names - 1)
      product *= sizes_[std::size_t(std::countr_zero(names))];
    return product;
  }
  Named product(Bits set) const {
    if (std::has_single_bit(set))
      return operands_[std::size_t(std::countr_zero(set))];
    Names kept;
    for (Bits names = needed(set); names != 0; names &= names - 1)
      kept.push_back(names_[std::size_t(std::countr_zero(names))]);
    return multiplied(product(left_[set]), product(set ^ left_[set]), kept, who_);
  }

  const std::vector<Named>& operands_;
  const char* who_;
  Names names_;               // by bit
  std::vector<double> sizes_; // by name's bit
  std::vector<Bits> of_operand_;
  Bits of_result_ = 0;
  std::vector<Bits> left_; // by set of operands: the left part of its product
};

// Products, each summed over the names that nobody needs any more.
Tensor contract(std::vector<Named> operands, const Names& result, const char* who) {
  DType type = operands[0].a.dtype();
  for (Named& x : operands) {
    x.a = product_operand(x.a);
    type = &x == operands.data() ? x.a.dtype() : promote(type, x.a.dtype());
  }
  if (type == DType::Bool)
    fail(ErrorKind::DType, "{}: takes numbers, got bool; convert with to(DType::F32)", who);
  const DType wide = accumulator_of(type);
  for (Named& x : operands)
    x = distinct({x.a.to(wide), x.names});
  for (std::size_t i = 0; i < operands.size(); ++i) { // names that nothing else has
    Names needed = result;
    for (std::size_t j = 0; j < operands.size(); ++j)
      if (j != i)
        needed.insert(needed.end(), operands[j].names.begin(), operands[j].names.end());
    operands[i] = summed(std::move(operands[i]), needed, who);
  }
  const auto total = [&] {
    if (operands.size() > 2)
      if (Order order(operands, result, who); order.fits())
        return order.run();
    return in_turn(operands, result, who);
  }();
  return spread(total, result).to(type);
}

[[noreturn]] void bad_formula(std::string_view formula, const std::string& why) {
  fail(ErrorKind::Value, "einsum: \"{}\": {}", formula, why);
}

// One side of "->": letters and at most one "...", which stands for `dots` axes.
Names parse_names(std::string_view text, std::size_t dots, std::string_view formula) {
  Names names;
  bool dotted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == ' ')
      continue;
    if (text.substr(i, 3) == "...") {
      if (dotted)
        bad_formula(formula, "more than one \"...\" in one place");
      dotted = true;
      for (std::size_t k = dots; k-- > 0;)
        names.push_back(-1 - static_cast<int>(k));
      i += 2;
    } else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      names.push_back(c);
    } else {
      bad_formula(formula, std::string("'") + c + "' is no letter");
    }
  }
  return names;
}

} // namespace

Tensor einsum(std::string_view formula, std::span<const Tensor> operands) {
  const std::size_t arrow = formula.find("->");
  std::vector<std::string_view> sides;
  for (std::string_view left = formula.substr(0, arrow);;) {
    const std::size_t comma = left.find(',');
    sides.push_back(left.substr(0, comma));
    if (comma == std::string_view::npos)
      break;
    left.remove_prefix(comma + 1);
  }
  if (operands.empty() || sides.size() != operands.size())
    bad_formula(formula,
                fmt::format("{} operands are named and {} given", sides.size(), operands.size()));
  std::vector<Named> named;
  std::map<int, Expr> sizes;
  std::map<int, int> counts;
  std::size_t most_dots = 0;
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::size_t rank = Access::raw(operands[i], "einsum")->form.shape.size();
    const std::size_t letters = parse_names(sides[i], 0, formula).size();
    const bool dotted = sides[i].find("...") != std::string_view::npos;
    if (dotted ? letters > rank : letters != rank)
      bad_formula(formula, fmt::format("operand {} is {} and has {} letters", i,
                                       shape_of(operands[i]), letters));
    const std::size_t dots = rank - letters;
    most_dots = std::max(most_dots, dots);
    Names names = parse_names(sides[i], dots, formula);
    for (std::size_t k = 0; k < names.size(); ++k) {
      const Expr& size = operands[i].shape()[k];
      const auto first = std::find(names.begin(), names.end(), names[k]) - names.begin();
      if (const Expr& other = operands[i].shape()[std::size_t(first)]; !(other == size))
        bad_formula(formula, fmt::format("'{}' stands twice in operand {}, at sizes {} and {}; a "
                                         "diagonal needs equal ones",
                                         static_cast<char>(names[k]), i, other.str(), size.str()));
      ++counts[names[k]];
      auto [at, fresh] = sizes.emplace(names[k], size);
      if (!fresh && !(at->second == size)) {
        if (at->second == Expr(1))
          at->second = size;
        else if (!(size == Expr(1)))
          bad_formula(
              formula,
              fmt::format("sizes {} and {} of '{}' differ", at->second.str(), size.str(),
                          names[k] > 0 ? std::string(1, static_cast<char>(names[k])) : "..."));
      }
    }
    named.push_back({operands[i], std::move(names)});
  }
  Names result;
  if (arrow != std::string_view::npos) {
    result = parse_names(formula.substr(arrow + 2), most_dots, formula);
    for (std::size_t i = 0; i < result.size(); ++i)
      if (!counts.count(result[i]) || std::count(result.begin(), result.end(), result[i]) > 1)
        bad_formula(formula, fmt::format("'{}' of the result stands in no operand, or twice",
                                         static_cast<char>(result[i])));
  } else {
    for (std::size_t k = most_dots; k-- > 0;)
      result.push_back(-1 - static_cast<int>(k));
    for (auto [name, count] : counts)
      if (name > 0 && count == 1)
        result.push_back(name);
  }
  return contract(std::move(named), result, "einsum");
}

Tensor einsum(std::string_view formula, std::initializer_list<Operand> operands) {
  return einsum(formula, std::vector<Tensor>(operands.begin(), operands.end()));
}

Tensor tensordot(const Operand& a, const Operand& b, const std::vector<std::int64_t>& axes_a,
                 const std::vector<std::int64_t>& axes_b) {
  Access::held(a, "tensordot");
  Access::held(b, "tensordot");
  if (axes_a.size() != axes_b.size())
    fail(ErrorKind::Axis, "tensordot: {} axes of the left operand and {} of the right one",
         axes_a.size(), axes_b.size());
  axes_of(axes_a, a.shape(), "tensordot"); // each once
  axes_of(axes_b, b.shape(), "tensordot");
  Named x{a, {}}, y{b, {}};
  for (int i = 0; i < a.rank(); ++i)
    x.names.push_back(i);
  for (int i = 0; i < b.rank(); ++i)
    y.names.push_back(static_cast<int>(a.rank()) + i);
  Names result = x.names;
  result.insert(result.end(), y.names.begin(), y.names.end());
  for (std::size_t i = 0; i < axes_a.size(); ++i) {
    const auto p = static_cast<std::size_t>(axis_of(axes_a[i], a.rank(), a.shape(), "tensordot"));
    const auto q = static_cast<std::size_t>(axis_of(axes_b[i], b.rank(), b.shape(), "tensordot"));
    if (!(a.shape()[p] == b.shape()[q]))
      fail(ErrorKind::Shape, "tensordot: axis {} of {} and axis {} of {} differ in size", p,
           shape_of(a), q, shape_of(b));
    std::erase(result, x.names[p]);
    std::erase(result, y.names[q]);
    y.names[q] = x.names[p];
  }
  return contract({std::move(x), std::move(y)}, result, "tensordot");
}

Tensor tensordot(const Operand& a, const Operand& b, std::int64_t axes) {
  Access::held(a, "tensordot");
  Access::held(b, "tensordot");
  if (axes < 0 || axes > a.rank() || axes > b.rank())
    fail(ErrorKind::Axis, "tensordot: {} axes of {} and {}", axes, shape_of(a), shape_of(b));
  std::vector<std::int64_t> last, first;
  for (std::int64_t i = 0; i < axes; ++i) {
    last.push_back(a.rank() - axes + i);
    first.push_back(i);
  }
  return tensordot(a, b, last, first);
}

Tensor kron(const Operand& a, const Operand& b) {
  Access::held(a, "kron");
  Access::held(b, "kron");
  const std::size_t rank = std::max(a.shape().size(), b.shape().size());
  Shape left, right, whole;
  for (std::size_t i = 0; i < rank; ++i) {
    auto dim = [&](const Tensor& t) {
      const std::size_t front = rank - t.shape().size();
      return i < front ? Expr(1) : t.shape()[i - front];
    };
    left.insert(left.end(), {dim(a), Expr(1)});
    right.insert(right.end(), {Expr(1), dim(b)});
    whole.push_back(dim(a) * dim(b));
  }
  return reshape(reshape(a, left) * reshape(b, right), whole);
}

Tensor trace(const Operand& a) {
  Access::held(a, "trace");
  if (a.rank() != 2)
    fail(ErrorKind::Shape, "trace: got {}; a matrix is needed", shape_of(a));
  return sum(diagonal(a));
}

Tensor cross(const Operand& a, const Operand& b, std::int64_t axis) {
  auto [x, y] = matched(a, b, "cross");
  axis = axis_of(axis, x.rank(), x.shape(), "cross");
  if (!(x.shape()[static_cast<std::size_t>(axis)] == Expr(3)))
    fail(ErrorKind::Shape, "cross: axis {} of {} must have size 3", axis, shape_of(x));
  auto turned = [&](const Tensor& t, std::int64_t by) { return roll(t, {by}, {axis}); };
  return turned(x, -1) * turned(y, -2) - turned(x, -2) * turned(y, -1);
}

Tensor cdist(const Operand& a, const Operand& b, double p) {
  Access::held(a, "cdist");
  Access::held(b, "cdist");
  if (a.rank() < 2 || b.rank() < 2 || !(a.shape().back() == b.shape().back()))
    fail(ErrorKind::Shape,
         "cdist: {} and {}: rows of equal width are needed, [.., m, d] and [.., n, d]", shape_of(a),
         shape_of(b));
  return norm(unsqueeze(a, -2) - unsqueeze(b, -3), -1, false, p);
}

} // namespace egret

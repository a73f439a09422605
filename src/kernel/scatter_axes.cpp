#include "kernel/scatter_axes.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// A digit of the offset: values 0 .. span, times coefficient. Unbounded when no guard bounds an
/// index.
struct AxisDigit {
  Expr coefficient;
  Expr largest = Expr(0); ///< coefficient * (count - 1)
  bool bounded = false;
  int axis = -1; ///< region axis; -1 for an index
};

/// The number of values of an index that the output's guards let through, when they say so.
std::optional<Expr> count_of(const Output& output, const Expr& index) {
  for (const Hole& hole : output.map.holes)
    for (const Guard& g : hole.valid)
      if (g.value == index && variables_of(g.lo).empty() && g.lo.lower() >= 0)
        return g.hi;
  return std::nullopt;
}

} // namespace

std::vector<int> independent_axes(const Region& region, const Output& output) {
  std::vector<int> axes = result_axes(region.stages[output.stage]);
  Expr offset = offset_of(output);
  Expr rest = offset;
  std::vector<AxisDigit> digits;
  for (const Expr& v : variables_of(offset)) {
    if (!v.is_axis() && !indirect_of(v))
      continue; // a size
    auto c = coefficient_of(offset, v);
    if (!c || c->lower() < 1)
      return {};
    AxisDigit d;
    d.coefficient = *c;
    d.axis = v.is_axis() ? axes[v.axis_number()] : -1;
    auto count =
        v.is_axis() ? std::optional<Expr>(region.axes[d.axis].extent) : count_of(output, v);
    d.bounded = count.has_value();
    if (count)
      d.largest = *c * (*count - Expr(1));
    rest = rest - *c * v;
    digits.push_back(std::move(d));
  }
  for (const Expr& v : variables_of(rest))
    if (v.is_axis() || indirect_of(v))
      return {};
  std::stable_sort(digits.begin(), digits.end(), [](const AxisDigit& a, const AxisDigit& b) {
    return a.coefficient.lower() < b.coefficient.lower();
  });
  Expr below(0);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (!proves_less(below, digits[i].coefficient))
      return {};
    if (i + 1 == digits.size())
      break;
    if (!digits[i].bounded)
      return {};
    below = below + digits[i].largest;
  }
  std::vector<int> out;
  for (const AxisDigit& d : digits)
    if (d.axis >= 0)
      out.push_back(d.axis);
  std::sort(out.begin(), out.end());
  return out;
}

} // namespace egret::kernel

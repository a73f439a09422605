#include "compiler/rebase_operands.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace egret::compiler {

namespace {

/// Of the widest access that has to be aligned.
constexpr std::int64_t kVectorBytes = 16;

/// The largest number that an index is divided by; 1: none.
std::int64_t largest_divisor(const Expr& e) {
  const ExprNode& node = e.node();
  std::int64_t largest = 1;
  if (node.kind == ExprKind::FloorDiv || node.kind == ExprKind::FloorMod)
    largest = std::max(largest, node.operands[1].constant().value_or(1));
  for (const Expr& part : node.operands)
    if (!part.is_axis() && !part.is_symbol())
      largest = std::max(largest, largest_divisor(part));
  return largest;
}

/// An expression with bounds, both inclusive.
struct Bounded {
  Expr value;
  std::int64_t least, most;
};

/// What a condition says of its value, and of what that is a quotient or a remainder of.
std::vector<Bounded> bounds_by(const Guard& guard) {
  const auto shifted = [](std::int64_t bound, std::int64_t by) {
    return bound == INT64_MIN || bound == INT64_MAX ? bound : bound + by;
  };
  Bounded own{guard.value, guard.lo.lower(), shifted(guard.hi.upper(), -1)};
  if (const ExprNode& node = own.value.node(); node.kind == ExprKind::Sum) {
    own.value = own.value - Expr(node.value);
    own.least = shifted(own.least, -node.value);
    own.most = shifted(own.most, -node.value);
  }
  std::vector<Bounded> all{own};
  const ExprNode& node = own.value.node();
  const bool mod = node.kind == ExprKind::FloorMod;
  if (!mod && node.kind != ExprKind::FloorDiv)
    return all;
  const Expr& of = node.operands[0];
  const std::int64_t by = node.operands[1].constant().value_or(0);
  if (by <= 0 || of.lower() < 0 || own.least == INT64_MIN)
    return all;
  if (mod) // no more than what it is the rest of
    all.push_back({of, own.least, INT64_MAX});
  else if (own.least <= of.upper() / by && own.most <= of.upper() / by)
    all.push_back({of, own.least * by, own.most * by + by - 1});
  return all;
}

/// The first and the last element that a load reads, where the conditions of its holes hold.
std::pair<std::int64_t, std::int64_t> read_by(const IndexMap& map) {
  const Expr& at = map.coords[0];
  std::int64_t first = at.lower(), last = at.upper();
  for (const Hole& hole : map.holes)
    for (const Guard& guard : hole.valid)
      for (const Bounded& known : bounds_by(guard)) {
        const Expr rest = at - known.value;
        if (known.least != INT64_MIN && rest.lower() != INT64_MIN)
          first = std::max(first, rest.lower() + known.least);
        if (known.most != INT64_MAX && rest.upper() != INT64_MAX)
          last = std::min(last, rest.upper() + known.most);
      }
  return {first, last};
}

/// The first and last element that loads of an operand read; `fits`: both are known.
struct Span {
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  /// Elements of a panel, two deep, where the operand may be in panels: they are read to their
  /// ends.
  std::int64_t panel = 1;
  bool fits = true, has_holes = false;

  void add(const kernel::Load& load) {
    if (!fits || !load.indirect.empty() || load.map.coords.size() != 1 ||
        has_symbols(load.map.coords[0])) {
      fits = false;
      return;
    }
    const auto [least, most] = read_by(load.map);
    first = std::min(first, least);
    last = std::max(last, most);
    has_holes |= !load.map.is_total();
    if (const std::int64_t divisor = largest_divisor(load.map.coords[0]); divisor > 1)
      panel = std::max(panel, 2 * divisor);
  }

private:
  static bool has_symbols(const Expr& e) {
    const std::vector<Expr> variables = variables_of(e);
    return std::any_of(variables.begin(), variables.end(),
                       [](const Expr& v) { return v.is_symbol(); });
  }
};

std::vector<Span> spans_of(const kernel::Region& region) {
  std::vector<Span> spans(region.operands.size());
  for (const kernel::Stage& stage : region.stages)
    for (const kernel::Load& load : stage.loads)
      if (load.source == kernel::Source::Operand)
        spans[static_cast<std::size_t>(load.number)].add(load);
  for (const kernel::Output& output : region.outputs)
    if (output.alias >= 0)
      spans[static_cast<std::size_t>(output.alias)].fits = false;
  return spans;
}

/// Whether the span is another one than the whole operand.
bool is_part(const kernel::Operand& operand, const Span& span) {
  if (!span.fits || operand.role != kernel::Role::Tensor || operand.shape.size() != 1 ||
      !operand.shape[0].is_constant() || span.first < 0 || span.first > span.last)
    return false;
  const std::int64_t elements = operand.shape[0].value();
  return span.last < elements && span.last - span.first + 1 < elements;
}

void rebase(BuiltRegion& built) {
  kernel::Region& region = built.region;
  const std::vector<Span> spans = spans_of(region);
  std::vector<std::int64_t> first(spans.size(), 0); // elements
  for (std::size_t o = 0; o < spans.size(); ++o) {
    kernel::Operand& operand = region.operands[o];
    if (!is_part(operand, spans[o]))
      continue;
    first[o] = spans[o].first;
    if (spans[o].has_holes) // a bound that is not tight takes no vectors' alignment away
      first[o] -= first[o] % (kVectorBytes / static_cast<std::int64_t>(size_of(operand.dtype)));
    const std::int64_t read = spans[o].last - first[o] + 1, panel = spans[o].panel;
    const std::int64_t there = operand.shape[0].value() - first[o];
    operand.shape = {Expr(std::min((read + panel - 1) / panel * panel, there))};
    operand.layout = IndexMap::identity(operand.shape);
    operand.alignment =
        std::gcd(operand.alignment, first[o] * static_cast<std::int64_t>(size_of(operand.dtype)));
  }
  if (std::all_of(first.begin(), first.end(), [](std::int64_t f) { return f == 0; }))
    return;
  for (kernel::Stage& stage : region.stages)
    for (kernel::Load& load : stage.loads)
      if (load.source == kernel::Source::Operand)
        if (const std::int64_t f = first[static_cast<std::size_t>(load.number)]; f != 0)
          load.map.coords[0] = load.map.coords[0] - Expr(f);
  for (std::size_t o = 0; o < first.size(); ++o)
    built.offsets.push_back(first[o] *
                            static_cast<std::int64_t>(size_of(region.operands[o].dtype)));
}

} // namespace

void rebase_operands(std::vector<BuiltRegion>& regions) {
  for (BuiltRegion& built : regions)
    rebase(built);
}

} // namespace egret::compiler

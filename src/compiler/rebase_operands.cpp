#include "compiler/rebase_operands.h"

#include <algorithm>
#include <numeric>

namespace egret::compiler {

namespace {

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

/// The first and last element that loads of an operand read; `fits`: both are known.
struct Span {
  std::int64_t first = INT64_MAX, last = INT64_MIN;
  /// Elements of a panel, two deep, where the operand may be in panels: they are read to their
  /// ends.
  std::int64_t panel = 1;
  bool fits = true;

  void add(const kernel::Load& load) {
    const bool plain = load.indirect.empty() && load.map.is_total() && load.map.coords.size() == 1;
    if (!fits || !plain || has_symbols(load.map.coords[0])) {
      fits = false;
      return;
    }
    first = std::min(first, load.map.coords[0].lower());
    last = std::max(last, load.map.coords[0].upper());
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

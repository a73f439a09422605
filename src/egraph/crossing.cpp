#include "egraph/plan.h"

#include <algorithm>

namespace egret::egraph {
namespace {

/// Whether an operand is known before the step that binds the registers from `first` on.
bool known_before(Operand operand, std::uint32_t first) {
  return operand.is_const || static_cast<std::int32_t>(operand.value) < 0 || operand.value < first;
}

} // namespace

std::optional<Crossing> crossing_of(const PlanStep& probe, std::vector<Operand> own_key,
                                    const PlanStep& lookup, std::uint32_t first) {
  Crossing crossing;
  crossing.target = lookup.target;
  crossing.whole = lookup.key;
  crossing.own = std::move(own_key);
  const auto bound_by_probe = [&](Operand operand) {
    return std::any_of(probe.columns.begin(), probe.columns.end(),
                       [&](const ColumnOp& op) { return op.bind && op.operand == operand; });
  };
  std::vector<Operand> found;
  for (std::uint32_t c = 0; c < lookup.key.size(); ++c) {
    const Operand operand = lookup.key[c];
    if (known_before(operand, first)) {
      crossing.index.push_back(c);
      crossing.key.push_back(operand);
    } else if (!bound_by_probe(operand)) {
      return std::nullopt;
    } else if (std::find(found.begin(), found.end(), operand) == found.end()) {
      found.push_back(operand);
      crossing.binds.push_back({c, true, operand});
    }
  }
  if (crossing.index.empty()) {
    for (const ColumnOp& op : lookup.columns) { // the output, where it is known
      if (op.column != lookup.key.size() || op.bind || !known_before(op.operand, first))
        continue;
      crossing.index.push_back(op.column);
      crossing.key.push_back(op.operand);
    }
  }
  const bool follows = std::all_of(crossing.own.begin(), crossing.own.end(), [&](Operand operand) {
    return known_before(operand, first) ||
           std::find(found.begin(), found.end(), operand) != found.end();
  });
  if (crossing.index.empty() || found.empty() || !follows)
    return std::nullopt;
  return crossing;
}

} // namespace egret::egraph

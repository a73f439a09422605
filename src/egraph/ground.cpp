#include "egraph/ground.h"

namespace egret::egraph {

std::uint32_t GroundRows::row(std::uint32_t ground) {
  if (found_.size() < forest_.grounds.size())
    found_.resize(forest_.grounds.size());
  // Terms may be deep, so the terms in a key are gone through with a stack.
  std::vector<std::uint32_t> stack{ground};
  while (!stack.empty()) {
    const std::uint32_t top = stack.back();
    const std::size_t before = stack.size();
    if (!found_[top].asked) {
      for (Operand operand : forest_.grounds[top].key) {
        if (!operand.is_const && !found_[~operand.value].asked)
          stack.push_back(~operand.value);
      }
    }
    if (stack.size() != before)
      continue;
    look_up(top);
    stack.pop_back();
  }
  return found_[ground].row;
}

void GroundRows::look_up(std::uint32_t ground) {
  Found& found = found_[ground];
  if (found.asked)
    return;
  found.asked = true;
  const Ground& term = forest_.grounds[ground];
  key_.clear();
  for (Operand operand : term.key) {
    if (!operand.is_const && found_[~operand.value].row == Table::kNone)
      return;
    key_.push_back(operand.is_const ? operand.value : found_[~operand.value].value);
  }
  const Table& table = engine_.tables[term.function];
  found.row = table.find_before(key_.data(), table.since(snapshot_));
  if (found.row != Table::kNone)
    found.value = table.output(found.row);
}

} // namespace egret::egraph

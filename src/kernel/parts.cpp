#include "kernel/parts.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace egret::kernel {

namespace {

/// For each stage one that stands for its part.
std::vector<std::size_t> roots_of_stages(const Region& region) {
  const std::size_t stages = region.stages.size();
  // Stages, then axes, then what stages of scalars alone belong to.
  std::vector<std::size_t> parent(stages + region.axes.size() + 1);
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  auto root = [&](std::size_t i) {
    while (parent[i] != i)
      i = parent[i] = parent[parent[i]];
    return i;
  };
  auto join = [&](std::size_t a, std::size_t b) { parent[root(b)] = root(a); };
  for (std::size_t s = 0; s < stages; ++s) {
    const Stage& stage = region.stages[s];
    if (stage.axes.empty() && std::ranges::none_of(stage.loads, [](const Load& load) {
          return load.source == Source::Stage;
        }))
      join(s, parent.size() - 1);
    for (int a : stage.axes)
      join(s, stages + static_cast<std::size_t>(a));
    for (const Load& load : stage.loads)
      if (load.source == Source::Stage)
        join(s, static_cast<std::size_t>(load.number));
  }
  std::vector<std::size_t> roots(stages);
  for (std::size_t s = 0; s < stages; ++s)
    roots[s] = root(s);
  return roots;
}

/// The number of each stage's part; numbers ascend with the first stages.
std::vector<int> part_of_stage(const Region& region) {
  const std::vector<std::size_t> roots = roots_of_stages(region);
  std::map<std::size_t, int> numbers;
  std::vector<int> part;
  for (const std::size_t root : roots)
    part.push_back(numbers.emplace(root, static_cast<int>(numbers.size())).first->second);
  return part;
}

/// Gives each number that it is asked for the next free one.
class Renumber {
public:
  explicit Renumber(std::size_t count) : fresh_(count, -1) {}
  /// The new number, and whether it was given just now.
  std::pair<int, bool> of(int old) {
    int& fresh = fresh_[static_cast<std::size_t>(old)];
    const bool is_new = fresh < 0;
    if (is_new) {
      fresh = static_cast<int>(old_.size());
      old_.push_back(old);
    }
    return {fresh, is_new};
  }
  const std::vector<int>& old() const { return old_; }

private:
  std::vector<int> fresh_, old_;
};

Part take_part(const Region& region, const std::vector<int>& part_of, int number) {
  Part part;
  part.region.name = region.name;
  std::vector<int> axes; // ascending, as stages have them
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    if (part_of[s] == number)
      axes.insert(axes.end(), region.stages[s].axes.begin(), region.stages[s].axes.end());
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  auto axis = [&](int& a) {
    a = static_cast<int>(std::lower_bound(axes.begin(), axes.end(), a) - axes.begin());
  };
  for (int a : axes)
    part.region.axes.push_back(region.axes[static_cast<std::size_t>(a)]);
  Renumber operands(region.operands.size()), stages(region.stages.size());
  auto operand = [&](int& o) {
    const auto [fresh, is_new] = operands.of(o);
    if (is_new)
      part.region.operands.push_back(region.operands[static_cast<std::size_t>(o)]);
    o = fresh;
  };
  for (std::size_t s = 0; s < region.stages.size(); ++s) {
    if (part_of[s] != number)
      continue;
    stages.of(static_cast<int>(s));
    Stage stage = region.stages[s];
    std::for_each(stage.axes.begin(), stage.axes.end(), axis);
    std::for_each(stage.over.begin(), stage.over.end(), axis);
    for (Load& load : stage.loads)
      if (load.source == Source::Operand)
        operand(load.number);
      else
        load.number = stages.of(load.number).first;
    part.region.stages.push_back(std::move(stage));
  }
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    Output out = region.outputs[o];
    if (part_of[static_cast<std::size_t>(out.stage)] != number)
      continue;
    out.stage = stages.of(out.stage).first;
    if (out.alias >= 0)
      operand(out.alias);
    part.region.outputs.push_back(std::move(out));
    part.outputs.push_back(static_cast<int>(o));
  }
  part.operands = operands.old();
  return part;
}

} // namespace

bool has_parts(const Region& region) {
  const std::vector<int> part = part_of_stage(region);
  return std::any_of(part.begin(), part.end(), [](int p) { return p > 0; });
}

bool are_of_one_part(const Region& region, std::size_t stage, std::size_t other) {
  if (stage == other)
    return true;
  const std::vector<std::size_t> roots = roots_of_stages(region);
  return roots[stage] == roots[other];
}

std::vector<Part> parts_of(const Region& region) {
  const std::vector<int> part = part_of_stage(region);
  const int count = part.empty() ? 0 : *std::max_element(part.begin(), part.end()) + 1;
  std::vector<Part> parts;
  for (int number = 0; number < count; ++number)
    parts.push_back(take_part(region, part, number));
  return parts;
}

void add_part(Region& whole, const Region& part, std::span<const int> operands) {
  const auto axes = static_cast<int>(whole.axes.size()),
             stages = static_cast<int>(whole.stages.size());
  auto operand = [&](int o) { return operands[static_cast<std::size_t>(o)]; };
  whole.axes.insert(whole.axes.end(), part.axes.begin(), part.axes.end());
  for (Stage stage : part.stages) {
    for (std::vector<int>* list : {&stage.axes, &stage.over})
      for (int& a : *list)
        a += axes;
    for (Load& load : stage.loads)
      load.number = load.source == Source::Operand ? operand(load.number) : load.number + stages;
    whole.stages.push_back(std::move(stage));
  }
  for (Output out : part.outputs) {
    out.stage += stages;
    if (out.alias >= 0)
      out.alias = operand(out.alias);
    whole.outputs.push_back(std::move(out));
  }
  whole.nodes.insert(whole.nodes.end(), part.nodes.begin(), part.nodes.end());
}

} // namespace egret::kernel

#include "loops/nests.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace egret::loops {

using kernel::loops::Kind;
using kernel::loops::Tree;

namespace {

void append(const kernel::Region& region, const Tree& tree, std::vector<Nest>& into) {
  const Tree* t = &tree;
  Nest nest;
  for (;; t = t->rest.get()) {
    if (t->kind == Kind::For) {
      if (!kernel::contains(nest.axes, t->axis))
        nest.axes.push_back(t->axis);
    } else if (t->kind == Kind::Accumulate) {
      if (!kernel::contains(nest.sums, t->stage))
        nest.sums.push_back(t->stage);
    } else if (t->kind == Kind::Then || t->kind == Kind::Body)
      break;
  }
  if (t->kind == Kind::Body)
    nest.body = t->stage;
  else if (nest.axes.empty() && nest.sums.empty()) { // a list in a list
    append(region, *t->first, into);
    append(region, *t->rest, into);
    return;
  } else
    while (true) {
      append(region, *t->first, nest.parts);
      if (t->rest->kind != Kind::Then) {
        append(region, *t->rest, nest.parts);
        break;
      }
      t = t->rest.get();
    }
  std::vector<int> summing = nest.sums;
  if (nest.body >= 0 && !kernel::contains(summing, nest.body))
    summing.push_back(nest.body);
  std::erase_if(nest.axes, [&](int a) {
    const bool term = std::ranges::any_of(
        summing, [&](int s) { return kernel::contains(region.stages[std::size_t(s)].over, a); });
    if (term)
      nest.terms.push_back(a);
    return term;
  });
  std::ranges::sort(nest.axes);
  std::ranges::sort(nest.terms);
  std::ranges::sort(nest.sums);
  into.push_back(std::move(nest));
}

std::string text_of(const Nest& nest) {
  std::string text;
  for (const int a : nest.axes)
    text += fmt::format("p{} ", a);
  if (!nest.sums.empty())
    text += fmt::format("sum{} ", fmt::join(nest.sums, "+"));
  for (const int a : nest.terms)
    text += fmt::format("r{} ", a);
  if (nest.body >= 0)
    return text + fmt::format("stage{}", nest.body);
  return text + "(" + text_of(nest.parts) + ")";
}

} // namespace

std::vector<Nest> nests_of(const kernel::Region& region, const Tree& tree) {
  std::vector<Nest> nests;
  append(region, tree, nests);
  return nests;
}

std::string text_of(const std::vector<Nest>& nests) {
  std::string text;
  for (const Nest& nest : nests)
    text += (text.empty() ? "" : "; ") + text_of(nest);
  return text;
}

} // namespace egret::loops

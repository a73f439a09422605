#include "loops/spans.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace egret::loops {

namespace tree = kernel::loops;
using kernel::Bind;
using kernel::Region;

std::optional<Split> split(const Region& region, const Span& span, std::int64_t factor) {
  const auto n = span.extent.constant();
  if (n && factor >= *n && !(factor == *n))
    return std::nullopt;
  Split result{std::nullopt, span};
  if (n && *n == factor)
    return result;
  Span& inner = result.inner;
  inner.extent = Expr(factor);
  inner.n = double(factor);
  inner.whole = false;
  Made outer{span.axis, Expr(1), factor, Bind::Serial, 1};
  if (n) {
    const bool divides = *n % factor == 0;
    if (!divides && !span.whole)
      return std::nullopt;
    outer.extent = Expr((*n + factor - 1) / factor);
    outer.trips = double((*n + factor - 1) / factor);
    inner.masked = span.masked || !divides;
  } else {
    const Expr& extent = region.axes[std::size_t(span.axis)].extent;
    outer.extent = ceildiv(extent, Expr(factor));
    outer.trips = std::ceil(span.n / double(factor));
    inner.masked = span.masked || extent.divisor() % factor != 0;
  }
  result.outer = outer;
  return result;
}

Made whole(const Span& span, Bind bind) {
  return {span.axis, span.extent, 1, bind, span.n};
}

TreePtr around(const std::vector<Made>& loops, TreePtr inside) {
  for (std::size_t i = loops.size(); i-- > 0;)
    inside =
        tree::loop(loops[i].axis, loops[i].extent, loops[i].step, loops[i].bind, std::move(inside));
  return inside;
}

void keep_best(std::vector<Sized>& list, std::size_t keep) {
  std::stable_sort(list.begin(), list.end(),
                   [](const Sized& a, const Sized& b) { return a.seconds < b.seconds; });
  std::map<Way, std::size_t> taken;
  std::erase_if(list, [&](const Sized& one) { return ++taken[one.way] > keep; });
}

void join_nests(const std::vector<std::vector<Sized>>& each, std::vector<Sized>& all) {
  const auto join = [&](std::size_t changed, std::size_t to) {
    TreePtr joined;
    double seconds = 0;
    Way way = Way::Plain;
    for (std::size_t i = each.size(); i-- > 0;) {
      const Sized& one = each[i][i == changed ? to : 0];
      way = std::max(way, one.way);
      joined = joined ? tree::then(one.tree, std::move(joined)) : one.tree;
      seconds += one.seconds;
    }
    all.push_back({std::move(joined), seconds, way});
  };
  join(0, 0);
  for (std::size_t i = 0; i < each.size(); ++i)
    for (std::size_t j = 1; j < each[i].size(); ++j)
      join(i, j);
}

} // namespace egret::loops

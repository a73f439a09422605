#include "kernel/touched_memory.h"

#include "kernel/region.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace egret::kernel {

bool share_memory(const MemoryRange& a, const MemoryRange& b) {
  return a.base == b.base && a.offset < b.end() && b.offset < a.end();
}

void MemoryRanges::close() {
  std::sort(all_.begin(), all_.end(), [](const MemoryRange& a, const MemoryRange& b) {
    return std::tie(a.base, a.offset) < std::tie(b.base, b.offset);
  });
  std::vector<MemoryRange> joined;
  for (const MemoryRange& p : all_)
    if (!joined.empty() && share_memory(joined.back(), p))
      joined.back().bytes = std::max(joined.back().end(), p.end()) - joined.back().offset;
    else
      joined.push_back(p);
  all_ = std::move(joined);
}

int MemoryRanges::at(const MemoryRange& range) const {
  const auto first = std::partition_point(all_.begin(), all_.end(), [&](const MemoryRange& one) {
    return std::pair(one.base, one.end()) <= std::pair(range.base, range.offset);
  });
  return first != all_.end() && share_memory(*first, range) ? static_cast<int>(first - all_.begin())
                                                            : -1;
}

namespace {

/// An axis variable's indices, both included, where conditions of the form lo <= variable +
/// constant < hi hold.
std::pair<std::int64_t, std::int64_t> indices_within(const Expr& variable,
                                                     const std::vector<Guard>& conditions) {
  std::int64_t least = variable.lower(), most = variable.upper();
  for (const Guard& guard : conditions) {
    const Expr shift = guard.value - variable;
    if (!shift.is_constant() || !guard.lo.is_constant() || !guard.hi.is_constant())
      continue;
    least = std::max(least, guard.lo.value() - shift.value());
    most = std::min(most, guard.hi.value() - 1 - shift.value());
  }
  return {least, most};
}

} // namespace

std::optional<RowAccess> row_access(const Region& region, const ElementAccess& access, int rows,
                                    std::int64_t per_row) {
  const auto at = std::find(access.axes.begin(), access.axes.end(), rows);
  if (at == access.axes.end())
    return std::nullopt;
  const Expr variable = Expr::axis(static_cast<int>(at - access.axes.begin()),
                                   region.axes[static_cast<std::size_t>(rows)].extent);
  const auto with = [&](const Expr& value) {
    return substitute(access.offset, [&](const Expr& v) {
      return v == variable ? std::optional<Expr>(value) : std::nullopt;
    });
  };
  Expr rest = with(Expr(0));
  const Expr stride = access.offset - rest, apart = with(Expr(1)) - rest;
  if (!(stride == variable * apart) || !apart.is_constant())
    return std::nullopt;
  bool never = false;
  rest = substitute(rest, [&](const Expr& v) -> std::optional<Expr> {
    if (!v.is_axis())
      return std::nullopt;
    const auto [least, most] = indices_within(v, access.conditions);
    never = never || most < least;
    return Expr::symbol("%within" + v.str(), 0, std::max<std::int64_t>(most - least, 0)) +
           Expr(least);
  });
  const auto size = static_cast<std::int64_t>(size_of(access.dtype));
  const std::int64_t pitch = apart.value() * per_row, within = apart.value() * (per_row - 1);
  if (never)
    return RowAccess{pitch * size, {0, 0}};
  if (rest.lower() == INT64_MIN || rest.upper() == INT64_MAX || apart.value() < 0)
    return std::nullopt;
  return RowAccess{pitch * size, {rest.lower() * size, (rest.upper() + within + 1) * size}};
}

} // namespace egret::kernel

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

std::optional<RowAccess> row_access(const Expr& offset, const std::vector<int>& axes, int rows,
                                    const Region& region, DType dtype) {
  const auto at = std::find(axes.begin(), axes.end(), rows);
  if (at == axes.end())
    return std::nullopt;
  const Expr variable = Expr::axis(static_cast<int>(at - axes.begin()),
                                   region.axes[static_cast<std::size_t>(rows)].extent);
  const auto with = [&](const Expr& value) {
    return substitute(offset, [&](const Expr& v) {
      return v == variable ? std::optional<Expr>(value) : std::nullopt;
    });
  };
  const Expr rest = with(Expr(0)), stride = offset - rest;
  if (!(stride == variable * (with(Expr(1)) - rest)) || !(with(Expr(1)) - rest).is_constant() ||
      rest.lower() == INT64_MIN || rest.upper() == INT64_MAX)
    return std::nullopt;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return RowAccess{(with(Expr(1)) - rest).value() * size,
                   {rest.lower() * size, (rest.upper() + 1) * size}};
}

} // namespace egret::kernel

#include "kernel/layouts.h"

#include "kernel/analysis.h"
#include "support/fail.h"
#include "support/hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace egret::kernel {

namespace {

/// Elements of an axis from one unit of digit `d` to the next.
std::int64_t unit_of(const Layout& layout, std::size_t d) {
  std::int64_t unit = 1;
  for (std::size_t i = d + 1; i < layout.digits.size(); ++i)
    if (layout.digits[i].axis == layout.digits[d].axis)
      unit *= layout.digits[i].extent;
  return unit;
}

/// Whether digit `d` is all that its axis has, of an extent of its own.
bool holds_axis(const Layout& layout, std::size_t d) {
  return std::ranges::count(layout.digits, layout.digits[d].axis, &Digit::axis) == 1;
}

} // namespace

std::vector<std::int64_t> extents_of(const Layout& layout) {
  std::vector<std::int64_t> extents;
  for (std::size_t d = 0; d < layout.digits.size(); ++d) {
    const Digit& digit = layout.digits[d];
    const std::int64_t unit = unit_of(layout, d);
    extents.push_back(digit.extent > 0
                          ? digit.extent
                          : (layout.box[static_cast<std::size_t>(digit.axis)] + unit - 1) / unit);
  }
  return extents;
}

bool is_permutation(const Layout& layout) {
  return layout.digits.size() == layout.box.size() &&
         std::ranges::all_of(layout.digits, [](const Digit& d) { return d.extent == 0; });
}

bool fits_exactly(const Layout& layout) {
  for (std::size_t d = 0; d < layout.digits.size(); ++d)
    if (layout.digits[d].extent == 0 &&
        layout.box[static_cast<std::size_t>(layout.digits[d].axis)] % unit_of(layout, d) != 0)
      return false;
  return true;
}

std::string to_string(const Layout& layout) {
  std::vector<std::string> digits;
  for (std::size_t d = 0; d < layout.digits.size(); ++d) {
    const Digit& digit = layout.digits[d];
    const std::int64_t unit = unit_of(layout, d);
    std::string text = fmt::format("n{}", digit.axis);
    if (unit > 1)
      text += fmt::format("/{}", unit);
    if (digit.extent > 0)
      text += fmt::format("{}{}", holds_axis(layout, d) ? ':' : '%', digit.extent);
    digits.push_back(std::move(text));
  }
  return fmt::format("[{}]", fmt::join(digits, ","));
}

std::uint64_t hash_of(const Layout& layout) {
  std::uint64_t hash = layout.box.size();
  for (const std::int64_t extent : layout.box)
    hash = combine(hash, static_cast<std::uint64_t>(extent));
  for (const Digit& digit : layout.digits)
    hash = combine(combine(hash, static_cast<std::uint64_t>(digit.axis)),
                   static_cast<std::uint64_t>(digit.extent));
  return hash;
}

std::optional<std::vector<int>> axes_in_memory(const Region& region, const Stage& stage,
                                               const Load& load) {
  if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
      region.operands[load.number].role != Role::Tensor)
    return std::nullopt;
  struct Strided {
    std::int64_t stride;
    int axis;
  };
  std::vector<Strided> strided;
  for (int axis : stage.axes) {
    const auto stride = stride_of(region, stage, load, axis);
    if (!stride || *stride < 0)
      return std::nullopt;
    if (*stride > 0)
      strided.push_back({*stride, axis});
  }
  std::sort(strided.begin(), strided.end(),
            [](const Strided& a, const Strided& b) { return a.stride > b.stride; });
  // From the inside out, each axis begins where those inside of it end.
  std::int64_t elements = 1;
  std::vector<int> axes(strided.size());
  for (std::size_t i = strided.size(); i-- > 0;) {
    const auto extent = region.axes[strided[i].axis].extent.constant();
    if (!extent || strided[i].stride != elements)
      return std::nullopt;
    elements *= *extent;
    axes[i] = strided[i].axis;
  }
  const Expr offset = offset_of(region, load);
  if (offset.lower() != 0 || !(element_count(region.operands[load.number].shape) == Expr(elements)))
    return std::nullopt;
  return axes;
}

} // namespace egret::kernel

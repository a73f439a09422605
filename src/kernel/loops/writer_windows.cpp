// Copies near of overlapping windows of an operand.
#include "kernel/loops/writer.h"

#include "kernel/analysis.h"

#include <fmt/format.h>

#include <algorithm>

namespace egret::kernel::loops {

std::optional<Writer::WindowCopy> Writer::windows_of(const Tree& near, const Here& h) {
  WindowCopy copy;
  copy.operand = near.operand;
  const Tree* vector = nullptr;
  for (int body : bodies(near)) {
    bool reads = false;
    for (int u : computed_[std::size_t(body)])
      for (const Load& l : r_.stages[std::size_t(u)].loads)
        if (l.source == Source::Operand && l.number == near.operand) {
          reads = true;
          copy.stage = u;
          copy.load = &l;
        }
    if (!reads)
      continue;
    const Tree* own = vector_of(body);
    // Matrix units read the operand's own type.
    if (!own || own->bind != Bind::Vector || h.digits.contains(own) ||
        (vector && vector->axis != own->axis))
      return std::nullopt;
    vector = own;
    copy.lanes = int(own->extent.value());
    copy.bodies.push_back(body);
  }
  if (target_.is_gpu() || !vector ||
      std::any_of(r_.outputs.begin(), r_.outputs.end(),
                  [&](const Output& o) { return o.alias == near.operand; }))
    return std::nullopt;
  // Each axis is inside as a whole, or outside.
  std::vector<int> inner;
  for (std::size_t a = 0; a < r_.axes.size(); ++a) {
    std::size_t entered = 0, left = 0;
    for (int body : copy.bodies)
      for (const Step& s : path(body))
        if (s.node->kind == Kind::For && s.node->axis == int(a) && !is_single(*s.node))
          ++(h.digits.contains(s.node) ? entered : left);
    if (entered > 0 && left > 0)
      return std::nullopt;
    if (left > 0)
      inner.push_back(int(a));
  }
  const auto access = only_access(r_, near.operand);
  if (!access || !contains(inner, vector->axis))
    return std::nullopt;
  auto window = window_over(r_, *access, inner, vector->axis);
  if (!window)
    return std::nullopt;
  // It pays where elements are read several times, or where lanes lie apart in a copy for all.
  const bool apart = h.shared && slope(r_, access->offset, vector->axis) != 1;
  if (copy.bodies.size() == 1 && !apart && !window->overlaps(r_, *access, inner, kUsesOfWindow))
    return std::nullopt;
  copy.window = std::move(*window);
  return copy;
}

void Writer::near_windows(WindowCopy copy, const Tree& near, const Here& h) {
  auto [held, fresh] = near_buffers_.try_emplace(&near, -1);
  if (fresh)
    held->second = memory(fmt::format("window{}_{}", near.operand, near_buffers_.size()),
                          compute_dtype(r_.operands[std::size_t(near.operand)].dtype),
                          Expr(copy.window.elements()), h);
  copy.buffer = held->second;
  b_.when(any_points(copy.bodies[0]), [&] {
    copy_window(e_, near.operand, copy.window, copy.buffer, Expr(0), h.point, copy.lanes, h.shared);
  });
  if (h.shared)
    meet();
  windows_.push_back(std::move(copy));
  emit(*near.rest, h);
  windows_.pop_back();
}

void Writer::provide_windows(int body, const Point& p) {
  for (const WindowCopy& copy : windows_)
    if (contains(copy.bodies, body)) {
      std::vector<Guard> mask = p.mask;
      for (Guard& g : copy.window.conditions(p))
        mask.push_back(std::move(g));
      e_.provide_load(r_.stages[std::size_t(copy.stage)], *copy.load, p,
                      b_.load(copy.buffer, copy.window.offset(p), p.lanes, std::move(mask)));
    }
}

} // namespace egret::kernel::loops

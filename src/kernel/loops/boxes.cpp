#include "kernel/loops/boxes.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel::loops {

Expr Box::elements() const {
  Expr n(1);
  for (const Side& s : sides)
    n = n * s.size;
  return n;
}

Expr Box::offset(const Point& point) const {
  Expr offset(0);
  for (const Side& s : sides)
    offset = offset * s.size + (point.at[std::size_t(s.axis)] - s.base);
  return offset;
}

std::optional<std::vector<std::int64_t>> Box::key(const Point& point) const {
  std::vector<std::int64_t> key;
  for (const Side& s : sides) {
    const auto c = first_thread(first_lane(point.at[std::size_t(s.axis)] - s.base)).constant();
    if (!c)
      return std::nullopt;
    key.push_back(*c);
  }
  return key;
}

std::vector<const Tree*> loops_left(const Path& path, std::span<const int> axes, const Here& here) {
  std::vector<const Tree*> loops;
  for (const Step& s : path)
    if (s.node->kind == Kind::For && !is_single(*s.node) && contains(axes, s.node->axis) &&
        !here.digits.contains(s.node))
      loops.push_back(s.node);
  return loops;
}

Box box_of(const Region& region, const Path& path, std::span<const int> axes, const Here& here) {
  Box box;
  const std::vector<const Tree*> left = loops_left(path, axes, here);
  for (std::size_t i = 0; i < left.size(); ++i) {
    const int a = left[i]->axis;
    if (std::any_of(left.begin() + std::ptrdiff_t(i) + 1, left.end(),
                    [&](const Tree* t) { return t->axis == a; }))
      continue; // its last loop says where its side stands
    std::int64_t widest = 0, entered = INT64_MAX;
    for (const Tree* t : left)
      if (t->axis == a)
        widest = std::max(widest, t->step);
    for (const auto& [t, digit] : here.digits)
      if (t->axis == a && !is_single(*t))
        entered = std::min(entered, t->step);
    // What is left are the index's low digits, or the whole index takes their place.
    if (entered != INT64_MAX && entered > widest)
      box.sides.push_back({a, here.point.at[std::size_t(a)], Expr(entered)});
    else
      box.sides.push_back({a, Expr(0), region.axes[std::size_t(a)].extent});
  }
  return box;
}

Expr first_thread(const Expr& e) {
  return substitute(e, [](const Expr& v) -> std::optional<Expr> {
    return threads_of(v) ? std::optional<Expr>(Expr(0)) : std::nullopt;
  });
}

Expr first_lane(const Expr& e) {
  return substitute(e, [](const Expr& v) -> std::optional<Expr> {
    return lanes_of(v) ? std::optional<Expr>(Expr(0)) : std::nullopt;
  });
}

Here enter(const Here& here, const Tree& loop, const Expr& digit) {
  Here in = here;
  Expr& at = in.point.at[std::size_t(loop.axis)];
  at = at + digit * Expr(loop.step);
  in.digits[&loop] = digit;
  return in;
}

} // namespace egret::kernel::loops

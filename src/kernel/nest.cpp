#include "kernel/nest.h"

namespace egret::kernel {

namespace {

/// Work (element operations) below which another worker costs more to wake than it saves.
constexpr std::int64_t kLeastWork = 16384;

} // namespace

void vector_loop(ProgramBuilder& b, const Expr& begin, const Expr& end, const Expr& extent,
                 int lanes, int copies,
                 const std::function<void(std::span<const Position>)>& body) {
  Expr lane = lanes > 1 ? lane_variable(lanes) : Expr(0);
  auto positions = [&](const Expr& base, int n, bool masked) {
    std::vector<Position> out;
    for (int i = 0; i < n; ++i) {
      Position p{base + Expr(std::int64_t(i) * lanes) + lane, {}};
      if (masked)
        p.mask.push_back({p.at, Expr(0), end});
      out.push_back(std::move(p));
    }
    return out;
  };
  Expr at = begin;
  for (int n = copies; n >= 1; n = n > 1 ? 1 : 0) {
    std::int64_t step = std::int64_t(n) * lanes;
    Expr stop = at + floordiv(end - at, Expr(step)) * Expr(step);
    b.loop(at, stop, Expr(step), extent, Bind::Serial,
           [&](const Expr& v) { body(positions(v, n, false)); });
    at = stop;
  }
  if (lanes > 1)
    b.when({{at, Expr(0), end}}, [&] { body(positions(at, 1, true)); });
}

void core_loop(ProgramBuilder& b, std::span<const Expr> extents,
               const std::function<void(std::span<const Expr>)>& body) {
  Expr total(1);
  for (const Expr& e : extents)
    total = total * e;
  b.loop(Expr(0), total, Expr(1), total, Bind::Core, [&](const Expr& flat) {
    std::vector<Expr> at(extents.size());
    Expr rest = flat;
    for (std::size_t i = extents.size(); i-- > 0;) {
      if (i == 0) {
        at[i] = rest;
      } else {
        // A loop over an empty box does not run, so the divisor may be taken as 1.
        Expr divisor = extents[i].lower() >= 1 ? extents[i] : max(extents[i], Expr(1));
        at[i] = floormod(rest, divisor);
        rest = floordiv(rest, divisor);
      }
    }
    body(at);
  });
}

void serial_loops(ProgramBuilder& b, std::span<const Expr> extents,
                  const std::function<void(std::span<const Expr>)>& body) {
  std::vector<Expr> at(extents.size());
  std::function<void(std::size_t)> open = [&](std::size_t i) {
    if (i == extents.size()) {
      body(at);
      return;
    }
    b.loop(Expr(0), extents[i], Expr(1), extents[i], Bind::Serial, [&](const Expr& v) {
      at[i] = v;
      open(i + 1);
    });
  };
  open(0);
}

Expr useful_workers(const Expr& iterations, const Expr& work) {
  return max(Expr(1), min(iterations, floordiv(work, Expr(kLeastWork))));
}

} // namespace egret::kernel

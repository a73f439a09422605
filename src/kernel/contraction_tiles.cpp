#include "kernel/contraction_tiles.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::kernel {

namespace {

/// What symbolic extents are taken for.
constexpr std::int64_t kUsual = 1024;

std::int64_t size_for(const Expr& extent) {
  return std::max<std::int64_t>(
      extent.constant().value_or(std::clamp(kUsual, extent.lower(), extent.upper())), 1);
}

std::int64_t ceil_to(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}
std::int64_t ceil_quotient(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

struct Problem {
  std::int64_t rows, columns, depth, batch;
  std::int64_t bytes; ///< of an element in registers
  int lanes;
  int registers, workers;
  std::int64_t l1, l2;
};

Problem problem_of(const ContractionForm& form, const Target& target, std::int64_t vector_bytes) {
  Problem p;
  p.rows = size_for(form.rows.extent);
  p.columns = size_for(form.columns.extent);
  p.depth = size_for(form.depth.extent);
  p.batch = size_for(form.batch.extent);
  p.bytes = std::int64_t(size_of(form.accumulator));
  p.lanes = int(std::clamp<std::int64_t>(vector_bytes / p.bytes, 1, 64));
  p.registers = target.vector_registers;
  p.workers = std::max(target.workers, 1);
  p.l1 = target.l1_bytes;
  p.l2 = target.l2_bytes;
  return p;
}

/// Cycles of the whole problem with a register tile: two products or two loads a cycle, and results
/// that are ready four cycles later.
double cycles(const Problem& p, int mr, int nv) {
  const std::int64_t nr = std::int64_t(nv) * p.lanes;
  const auto panel = [&](int vectors) {
    return std::max({mr * vectors / 2.0, (mr + vectors) / 2.0 * 1.15, 4.0}) + 0.15;
  };
  const std::int64_t full = p.columns / nr, rest = ceil_quotient(p.columns % nr, p.lanes);
  const double columns = double(full) * panel(nv) + (rest > 0 ? panel(int(rest)) : 0.0);
  // Starting, ending and leaving a tile cost about as much as some steps of it.
  const double overhead = 1.0 + 8.0 / double(p.depth);
  return double(ceil_quotient(p.rows, mr)) * columns * overhead;
}

struct RegisterTile {
  int mr, nv;
  double cost;
};

/// All register tiles that leave room for the operands, best first.
std::vector<RegisterTile> register_tiles(const Problem& p) {
  std::vector<RegisterTile> tiles;
  const auto widest = int(std::min<std::int64_t>(6, ceil_quotient(p.columns, p.lanes)));
  for (int nv = 1; nv <= widest; ++nv)
    for (int mr = 1; mr <= 24 && mr <= p.rows; ++mr)
      if (mr * nv + nv + 1 <= p.registers - 1)
        tiles.push_back({mr, nv, cycles(p, mr, nv)});
  if (tiles.empty())
    tiles.push_back({1, 1, 0});
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const RegisterTile& a, const RegisterTile& b) { return a.cost < b.cost; });
  return tiles;
}

/// Pieces of at most `most` units that share `units` out evenly, in a number that workers can share
/// evenly.
std::int64_t even_piece(std::int64_t units, std::int64_t most, std::int64_t workers) {
  std::int64_t pieces = ceil_quotient(units, std::max<std::int64_t>(most, 1));
  if (workers > 1 && units >= workers && pieces < 4 * workers)
    pieces = ceil_to(pieces, workers);
  return std::max<std::int64_t>(ceil_quotient(units, pieces), 1);
}

/// Whether a side can be read where it is, `rows` panel elements by `depth`, without its lines
/// driving each other out of the cache.
bool reads_in_place(const Problem& p, std::int64_t stride, std::int64_t count, std::int64_t limit) {
  return stride * count * p.bytes <= limit;
}

Schedule make_schedule(const ContractionForm& form, const Problem& p, int mr, int nv) {
  Schedule s;
  s.generator = "contraction";
  auto& k = s.knobs;
  const std::int64_t nr = std::int64_t(nv) * p.lanes;
  k["mr"] = mr;
  k["nr"] = nr;
  k["unroll"] = 4;
  // A panel of the right side should stay near while the rows go by.
  std::int64_t kc = 256;
  if (p.depth <= kc + kc / 2)
    kc = p.depth;
  else
    kc = ceil_to(ceil_quotient(p.depth, ceil_quotient(p.depth, kc)), std::max(p.lanes, 4));
  k["kc"] = kc;

  // A left side with its depth in order is read where it is when the rows of a block lie close
  // together.
  const std::int64_t panels = ceil_quotient(p.rows, mr);
  const bool one_block = kc >= p.depth;
  std::int64_t row_bytes = kc * p.bytes;
  const bool left_here =
      form.left.plain && form.left.order == Side::Order::Depth && form.left.depth_stride == 1 &&
      form.left.panel_stride > 0 && one_block &&
      reads_in_place(p, form.left.panel_stride, std::min<std::int64_t>(p.rows, 96), p.l2 / 2);
  const bool right_here = form.right.plain && form.right.order == Side::Order::Panel &&
                          form.right.panel_stride == 1 && form.right.depth_stride > 0 &&
                          one_block &&
                          reads_in_place(p, form.right.depth_stride, p.depth, p.l2 / 2);
  k["pack_left"] = left_here ? 0 : 1;
  k["pack_right"] = right_here ? 0 : 1;
  const bool many = p.batch >= 2 * p.workers;
  k["shared"] = many || (left_here && right_here) ? 0 : 1;

  const std::int64_t sharing = many ? 1 : p.workers;
  const std::int64_t block_rows =
      std::max<std::int64_t>(p.l2 / 3 / std::max<std::int64_t>(row_bytes, 1), mr);
  const std::int64_t column_panels = ceil_quotient(p.columns, nr);
  std::int64_t nc = std::max<std::int64_t>(512 / nr, 1);
  k["nc"] = nr * even_piece(column_panels, one_block ? column_panels : nc, 1);
  k["mc"] = mr * even_piece(panels, std::max<std::int64_t>(block_rows / mr, 1), sharing);
  return s;
}

} // namespace

Tiles tiles_of(const Schedule& schedule, const ContractionForm& form, const Target& target) {
  const std::int64_t bytes =
      schedule.vector_bytes != 0 ? schedule.vector_bytes : target.vector_bytes;
  const Problem p = problem_of(form, target, bytes);
  Tiles t;
  t.lanes = p.lanes;
  t.mr = int(std::clamp<std::int64_t>(schedule.knob("mr", 6), 1, 2 * p.lanes));
  t.nv =
      int(std::clamp<std::int64_t>(ceil_quotient(schedule.knob("nr", 4 * p.lanes), p.lanes), 1, 8));
  t.unroll = int(std::clamp<std::int64_t>(schedule.knob("unroll", 4), 1, 16));
  const std::int64_t depth = form.depth.extent.constant().value_or(0);
  t.kc = std::max<std::int64_t>(schedule.knob("kc", 256), 1);
  if (depth > 0 && t.kc >= depth)
    t.kc = depth;
  else
    t.kc = ceil_to(t.kc, t.lanes);
  t.mc = ceil_to(std::max<std::int64_t>(schedule.knob("mc", 192), 1), t.mr);
  t.nc = ceil_to(std::max<std::int64_t>(schedule.knob("nc", 512), 1), t.nr());
  t.pack_left = schedule.knob("pack_left", 1) != 0 || !form.left.plain;
  t.pack_right = schedule.knob("pack_right", 1) != 0 || !form.right.plain;
  t.shared = schedule.knob("shared", 1) != 0 && (t.pack_left || t.pack_right);
  return t;
}

std::vector<Schedule> contraction_space(const ContractionForm& form, const Target& target) {
  const Problem p = problem_of(form, target, target.vector_bytes);
  std::vector<Schedule> space;
  const auto add = [&](Schedule s) {
    if (std::find(space.begin(), space.end(), s) == space.end())
      space.push_back(std::move(s));
  };
  const auto tiles = register_tiles(p);
  for (std::size_t i = 0; i < tiles.size() && i < 4; ++i)
    add(make_schedule(form, p, tiles[i].mr, tiles[i].nv));
  const Schedule best = space[0];
  const auto with = [&](const std::string& knob, std::int64_t value) {
    Schedule s = best;
    s.knobs[knob] = value;
    add(std::move(s));
  };
  for (const std::int64_t kc : {128, 384, 512})
    if (kc < p.depth)
      with("kc", kc);
  for (const char* pack : {"pack_left", "pack_right"})
    if (pack[5] == 'l' ? form.left.plain : form.right.plain)
      with(pack, 1 - best.knob(pack, 1));
  with("shared", 1 - best.knob("shared", 1));
  with("mc", 2 * best.knob("mc", 1));
  if (best.knob("mc", 1) > 2 * best.knob("mr", 1))
    with("mc", best.knob("mc", 1) / 2);
  with("nc", 2 * best.knob("nc", 1));
  return space;
}

} // namespace egret::kernel

#include "kernel/contraction_tiles.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/contraction_window.h"
#include "support/checked.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::kernel {

namespace {

/// Of the best register tile's cost, what another one's may be that suits panels better.
constexpr double kAlmost = 1.15;
/// Register tiles that are enough for all workers, and that are too few for most; shares of a
/// depth, and their steps at the least.
constexpr std::int64_t kFewTiles = 64, kFewestTiles = 16, kShares = 16, kShareDepth = 512;

/// Values of `shared`: all workers pack both sides; the right side only.
constexpr std::int64_t kSharedBoth = 1, kSharedRight = 2;
/// Packed by all, or by each.
std::int64_t other_sharing(const Schedule& s) {
  return s.knob("shared", kSharedBoth) == 0 ? kSharedBoth : 0;
}

/// Columns of a block for each row of a left side that is packed again for the block.
constexpr std::int64_t kRowsBesideColumns = 8;

struct Problem {
  std::int64_t rows, columns, batch;
  std::int64_t depth;            ///< in steps
  bool pairs = false;            ///< a step is a pair
  std::int64_t vector_bytes = 0; ///< of schedules; 0: the target's
  std::int64_t bytes;            ///< of an element in registers
  int lanes;
  int registers, workers;
  std::int64_t l1, l2;
  int slices; ///< of the columns, which a register tile has as many vectors of each
};

Problem problem_of(const ContractionForm& form, const Target& target, std::int64_t vector_bytes) {
  Problem p;
  p.rows = usual_size(form.rows.extent);
  p.columns = usual_size(form.columns.extent);
  p.depth = usual_size(form.depth.extent);
  p.batch = usual_size(form.batch.extent);
  p.bytes = std::int64_t(size_of(form.accumulator));
  p.lanes = int(std::clamp<std::int64_t>(vector_bytes / p.bytes, 1, 64));
  p.registers = target.vector_registers;
  p.workers = std::max(target.workers, 1);
  p.l1 = target.l1_bytes;
  p.l2 = target.l2_bytes;
  p.vector_bytes = vector_bytes == target.vector_bytes ? 0 : vector_bytes;
  p.slices = int(form.columns.slices);
  return p;
}

/// The same product by pairs along the depth.
Problem in_pairs(Problem p) {
  p.depth = ceil_quotient(p.depth, std::int64_t{2});
  p.pairs = true;
  return p;
}

/// Vectors no wider than the columns fill: on no CPU are narrower ones slower, down to these.
std::int64_t fitting_vector(const ContractionForm& form, const Target& target) {
  constexpr std::int64_t kFastVector = 32;
  const std::int64_t needed =
      usual_size(form.columns.slice_extent()) * std::int64_t(size_of(form.accumulator));
  std::int64_t bytes = target.vector_bytes;
  while (bytes / 2 >= std::max(needed, kFastVector))
    bytes /= 2;
  return bytes;
}

/// Cycles of the whole problem with a register tile: two products or two loads a cycle, results
/// that are ready four cycles later, vectors of the right side that often come from the second
/// cache, and a left side whose many rows are many addresses. The small terms are fitted to
/// measurements.
double cycles(const Problem& p, int mr, int nv) {
  const std::int64_t nr = std::int64_t(nv) * p.lanes;
  const auto panel = [&](int vectors) {
    const double busy = std::max({mr * vectors / 2.0, (mr + vectors) / 2.0 * 1.15, 4.0});
    return busy + 0.3 * vectors + 0.12 * std::max(mr - 6, 0) + 0.15;
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

/// All register tiles that leave room for the operands, best first. `panels`: of a right side that
/// lies in panels of so many columns, those that go through them evenly; 0: any.
std::vector<RegisterTile> register_tiles(const Problem& p, std::int64_t panels = 0) {
  std::vector<RegisterTile> tiles;
  const auto widest = p.slices > 1
                          ? std::max(p.slices, 6)
                          : int(std::min<std::int64_t>(6, ceil_quotient(p.columns, p.lanes)));
  for (int nv = p.slices; nv <= widest; nv += p.slices)
    for (int mr = 1; mr <= 24 && mr <= p.rows; ++mr)
      if (mr * nv + nv + 1 <= std::max(p.registers - 3, 3) &&
          (panels == 0 || panels % (std::int64_t(nv / p.slices) * p.lanes) == 0))
        tiles.push_back({mr, nv, cycles(p, mr, nv)});
  if (tiles.empty() && panels > 0)
    return register_tiles(p);
  if (tiles.empty())
    tiles.push_back({1, p.slices, 0});
  std::stable_sort(tiles.begin(), tiles.end(),
                   [](const RegisterTile& a, const RegisterTile& b) { return a.cost < b.cost; });
  return tiles;
}

/// Pieces of at most `most` units that share `units` out evenly, in a number that workers can share
/// evenly.
std::int64_t even_piece(std::int64_t units, std::int64_t most, std::int64_t workers) {
  std::int64_t pieces = ceil_quotient(units, std::max<std::int64_t>(most, 1));
  if (workers > 1 && units >= workers && pieces < 4 * workers)
    pieces = round_up<std::int64_t>(pieces, workers);
  return std::max<std::int64_t>(ceil_quotient(units, pieces), 1);
}

/// The left side is read element by element, so it needs no copy as long as neighbours share lines.
bool left_in_place(const ContractionForm& form, const Problem& p) {
  if (p.pairs)
    return form.left.words;
  return form.left.plain && (form.left.depth_stride == 1 || form.left.panel_stride == 1);
}

/// The right side is read in vectors, which do not go over the end of an axis; lines far apart
/// drive each other out of the cache.
bool right_in_place(const ContractionForm& form, const Problem& p, std::int64_t kc) {
  if (form.right.tile > 0)
    return (p.pairs ? form.right.pairs : form.right.plain) &&
           (p.slices == 1 || form.right.tile % p.lanes == 0);
  if (p.pairs)
    return false;
  return form.right.plain && form.right.panel_stride == 1 && form.right.depth_stride > 0 &&
         form.right.run % p.lanes == 0 && form.right.depth_stride * kc * p.bytes <= p.l2;
}

/// A right side of which every element is read once is better not copied, whatever is made of it on
/// the way, unless it comes from far: a copy reads memory row by row.
bool is_read_once(const ContractionForm& form, const Problem& p, int mr) {
  return p.rows <= mr && form.right.order != Side::Order::Depth && form.right.tile == 0 &&
         p.columns * p.depth * p.bytes <= p.l2;
}

Schedule make_schedule(const ContractionForm& form, const Problem& p, int mr, int nv) {
  const std::int64_t nr = std::int64_t(nv) * p.lanes;
  // Parts of the depth, of equal size, such that a panel of the right side and one of the left stay
  // near while the rows go by.
  const std::int64_t most = std::max<std::int64_t>(p.l1 * 4 / 3 / (p.bytes * 64), p.lanes);
  std::int64_t kc = p.depth;
  if (p.depth > 2 * most)
    kc = round_up<std::int64_t>(ceil_quotient(p.depth, ceil_quotient(p.depth, most)),
                                std::max(p.lanes, 4));
  const bool one_part = kc >= p.depth;
  const bool left_here = left_in_place(form, p),
             right_here = right_in_place(form, p, kc) || is_read_once(form, p, mr);
  const bool many = p.batch >= 2 * p.workers;

  // A block of rows stays in the second cache while the columns go by, beside sums that wait.
  const std::int64_t row_panels = ceil_quotient(p.rows, mr),
                     column_panels = ceil_quotient(p.columns, nr);
  const std::int64_t rows = p.l2 / 4 / (kc * p.bytes);
  const std::int64_t columns = one_part ? p.columns : 528;
  Schedule s;
  s.generator = "contraction";
  s.vector_bytes = p.vector_bytes;
  if (p.pairs)
    s.mma = is_float(form.accumulator) ? kPairs : kIntegerPairs;
  auto& k = s.knobs;
  k["mr"] = mr;
  k["nr"] = nr;
  k["kc"] = kc;
  k["mc"] = mr * even_piece(row_panels, rows / mr, many ? 1 : p.workers);
  k["nc"] = nr * even_piece(column_panels, ceil_quotient(columns, nr), 1);
  k["unroll"] = 2;
  k["pack_left"] = left_here ? 0 : 1;
  k["pack_right"] = right_here ? 0 : 1;
  // Where one block has all columns, each panel of the left side is read in one block only, so that
  // its worker packs it just before: a copy of windows, many times what memory holds, does not go
  // through memory.
  const bool own = !left_here && k["nc"] >= nr * column_panels;
  k["shared"] = many || (left_here && right_here) ? 0 : own ? kSharedRight : kSharedBoth;
  // Where one block has all rows, each panel of the right side is read in one block only: the
  // worker that reads it packs it just before, into the second cache, and no packed copy of the
  // whole side (of windows, many times what memory holds) goes through memory. A left side of few
  // rows beside those columns costs little to pack again for each block.
  const std::int64_t panel_bytes = nr * p.depth * p.bytes;
  const std::int64_t block =
      nr * even_piece(column_panels, p.l2 / 2 / panel_bytes, many ? 1 : p.workers);
  const bool light_left = left_here || (!many && kRowsBesideColumns * p.rows <= block);
  if (light_left && !right_here && (row_panels == 1 || rows >= p.rows) &&
      (row_panels == 1 ||
       (4 * panel_bytes <= p.l2 / 2 &&
        (many || column_panels >= std::min<std::int64_t>(p.workers, row_panels))))) {
    k["shared"] = 0;
    k["mc"] = mr * row_panels;
    k["nc"] = block;
    if (row_panels == 1 && panel_bytes <= p.l2 / 2)
      k["kc"] = p.depth; // no sums wait
  }
  if (right_here && row_panels == 1 && !many) // workers share the columns
    k["nc"] = nr * even_piece(column_panels, ceil_quotient(columns, nr), p.workers);
  return s;
}

/// A problem whose right side is read from a copy of its windows.
struct WindowedProblem {
  Problem problem;
  ContractionForm form;
  bool packed = false; ///< into panels, from the copy
  double copied = 0;   ///< cycles
};

/// Cycles for which a worker is busy with a vector of the right side that is put together of
/// elements that lie apart or behind conditions, by its lanes. The numbers are fitted to
/// measurements.
constexpr double kGather = 1.5, kNarrowGather = 2;
/// Cycles in which a register tile finds where in a copy a step of the depth lies.
constexpr double kPlaceOfStep = 1;
/// Cycles for an element of a panel that is packed from a copy.
constexpr double kFromCopy = 0.35;

double cycles_of_packing(const Region& region, const ContractionForm& form, const Problem& p) {
  const Factor factor = factor_of(region, form, form.right);
  if (factor.is_load && form.right.run % p.lanes == 0) // evenly apart at most
    return 0;
  const double of_element = size_of(factor.dtype) < 4 ? kNarrowGather : kGather;
  return double(ceil_quotient(p.columns, p.lanes)) * p.lanes * double(p.depth) * (p.pairs ? 2 : 1) *
         of_element;
}

/// The same product from a copy of its windows, by vectors of so many bytes, read where they lie
/// or packed.
std::optional<WindowedProblem> by_copy(const Region& region, const ContractionForm& form,
                                       const Target& target, std::int64_t bytes, bool packed,
                                       bool pairs = false) {
  const Problem lanes = problem_of(form, target, bytes);
  auto found = with_window(region, form, target, lanes.lanes, packed);
  if (!found)
    return std::nullopt;
  const Problem single = problem_of(found->form, target, bytes);
  WindowedProblem w{pairs ? in_pairs(single) : single, found->form, packed,
                    double(found->window.elements() * usual_size(found->form.batch.extent)) *
                        (found->gathers ? kGather : 0.25)};
  if (packed)
    return w;
  // What the right side of the form says is of the copy from here on.
  Side& side = w.form.right;
  side.plain = true;
  side.order = Side::Order::Panel;
  side.panel_stride = side.depth_stride = 1;
  side.run = 0;
  return w;
}

/// Where vectors are read from a copy, those that waste the fewest places of a row.
std::optional<WindowedProblem> by_windows(const Region& region, const ContractionForm& form,
                                          const Target& target) {
  constexpr std::int64_t kFastVector = 32;
  std::optional<WindowedProblem> best;
  for (std::int64_t bytes = target.vector_bytes;
       bytes >= std::min<std::int64_t>(kFastVector, target.vector_bytes); bytes /= 2) {
    auto w = by_copy(region, form, target, bytes, false);
    if (!w)
      return std::nullopt;
    if (!best ||
        w->problem.columns * w->problem.batch < best->problem.columns * best->problem.batch)
      best = std::move(w);
  }
  return best;
}

/// Cycles of all batch elements from copies, with the best register tile.
double cycles_of_copies(const Region& region, const WindowedProblem& w, const RegisterTile& best) {
  const Problem& p = w.problem;
  double of_step = best.cost;
  if (w.packed)
    of_step += double(p.columns) * kFromCopy * (p.pairs ? 2 : 1) *
               (double(p.lanes) / lanes_of_packing(region, w.form, p.lanes));
  else
    of_step += kPlaceOfStep * double(ceil_quotient(p.rows, best.mr)) *
               double(ceil_quotient(p.columns, std::int64_t(best.nv) * p.lanes));
  return of_step * double(p.depth * p.batch) + w.copied;
}

/// Cycles of a vector of results whose lanes are stored on both sides of an axis's end, and of a
/// load of the right side that takes two vectors of memory there, beyond those of others. The
/// numbers are fitted to measurements.
constexpr double kCrossingStore = 4, kCrossingLoad = 2;

/// Cycles for which vectors that go over the end of the columns' innermost axis keep a worker busy,
/// beyond those of others.
double cycles_of_crossing(const Region& region, const ContractionForm& form, const Problem& p) {
  const Stage& stage = region.stages[std::size_t(form.stage)];
  const double run = double(usual_size(region.axes[std::size_t(form.columns.axes.back())].extent));
  const double load = form.right.order == Side::Order::Depth   ? 0
                      : form.right.order == Side::Order::Panel ? kCrossingLoad
                                                               : kGather * p.lanes;
  const double loads = load * double(loads_of(stage, form.right.value).size());
  return double(ceil_quotient(p.columns, p.lanes)) * std::min(double(p.lanes - 1) / run, 1.0) *
         (double(p.rows) * kCrossingStore + double(p.depth) * loads);
}

/// The product with columns in whole vectors, by register tiles that go through them evenly, the
/// best first.
struct PaddedProblem {
  Problem problem;
  ContractionForm form;
  std::vector<RegisterTile> tiles;
};
std::optional<PaddedProblem> by_whole_vectors(const Region& region, const ContractionForm& form,
                                              const Target& target, std::int64_t bytes) {
  const Problem crossing = problem_of(form, target, bytes);
  const auto padded = with_whole_vectors(region, form, crossing.lanes);
  if (!padded)
    return std::nullopt;
  PaddedProblem found{problem_of(*padded, target, bytes), *padded, {}};
  found.tiles = register_tiles(found.problem, padded->columns.padded);
  return found;
}

Schedule windowed_schedule(const WindowedProblem& w, int mr, int nv) {
  Schedule s = make_schedule(w.form, w.problem, mr, nv);
  s.knobs["window"] = 1;
  s.knobs["pack_right"] = w.packed ? 1 : 0;
  // A worker copies for its batch elements, all rows and columns of each; or all workers copy for
  // one after the other, which also pays for one worker: where the copy stands in no loop with the
  // products, their sums keep their registers.
  const Problem& p = w.problem;
  if (w.packed && s.knob("nr", 1) * p.depth * p.bytes <= p.l2 / 4)
    s.knobs["kc"] = p.depth; // a panel stays near with all of its depth, and no sums wait
  const bool many = w.problem.batch >= 2 * w.problem.workers;
  s.knobs["shared"] = many ? 0 : kSharedBoth;
  if (many) {
    s.knobs["mc"] = round_up<std::int64_t>(w.problem.rows, mr);
    s.knobs["nc"] = round_up<std::int64_t>(w.problem.columns, s.knob("nr", 1));
  } else {
    const std::int64_t panels = ceil_quotient(w.problem.columns, s.knob("nr", 1));
    s.knobs["nc"] = s.knob("nr", 1) * even_piece(panels, panels, w.problem.workers);
    s.knobs["mc"] = round_up<std::int64_t>(w.problem.rows, mr);
  }
  return s;
}

} // namespace

Tiles tiles_of(const Schedule& schedule, const Region& region, const ContractionForm& form,
               const Target& target) {
  if (schedule.mma == kMatrix)
    return matrix_sizes(schedule, region, form);
  const std::int64_t bytes =
      schedule.vector_bytes != 0 ? schedule.vector_bytes : target.vector_bytes;
  const Problem p = problem_of(form, target, bytes);
  Tiles t;
  t.lanes = p.lanes;
  t.mr = int(std::clamp<std::int64_t>(schedule.knob("mr", 6), 1, 2 * p.lanes));
  t.nv =
      int(std::clamp<std::int64_t>(ceil_quotient(schedule.knob("nr", 4 * p.lanes), p.lanes), 1, 8));
  t.nv = std::max(t.nv / p.slices, 1) * p.slices;
  t.unroll = int(std::clamp<std::int64_t>(schedule.knob("unroll", 2), 1, 16));
  t.width = schedule.mma.empty() ? 1 : 2;
  const std::int64_t depth = ceil_quotient(form.depth.extent.constant().value_or(0), t.width);
  t.kc = std::max<std::int64_t>(schedule.knob("kc", 256), 1);
  if (depth > 0 && t.kc >= depth)
    t.kc = depth;
  else
    t.kc = round_up<std::int64_t>(t.kc, t.lanes);
  t.mc = round_up<std::int64_t>(std::max<std::int64_t>(schedule.knob("mc", 192), 1), t.mr);
  t.nc = round_up<std::int64_t>(std::max<std::int64_t>(schedule.knob("nc", 512), 1), t.nr());
  t.pack_left =
      schedule.knob("pack_left", 1) != 0 || !(t.width > 1 ? form.left.words : form.left.plain);
  const bool panels = t.width > 1
                          ? form.right.pairs && form.right.tile % (t.nr() / p.slices) == 0
                          : form.right.plain && (p.slices == 1 || form.right.tile % t.lanes == 0);
  t.pack_right = schedule.knob("pack_right", 1) != 0 ||
                 !(panels || (form.right.order != Side::Order::Depth && form.right.tile == 0));
  t.window = schedule.knob("window", 0) != 0;
  t.padded = schedule.knob("padded", 0) != 0;
  if (t.window)
    t.pack_right = schedule.knob("pack_right", 0) != 0;
  t.shared = schedule.knob("shared", 1) != 0 && (t.pack_left || t.pack_right || t.window);
  t.own_left = t.shared && t.pack_left && schedule.knob("shared", 1) == kSharedRight;
  if (depth > 0 && schedule.split_reduce > 1) {
    // Of equal numbers of parts, so that no share is empty.
    const std::int64_t parts = ceil_quotient(depth, t.kc);
    t.split = ceil_quotient(parts, ceil_quotient(parts, std::min(schedule.split_reduce, parts)));
  }
  return t;
}

std::string pairs_refused(const Region& region, const ContractionForm& form, const Target& target) {
  if (target.unit(FragmentLayout::Pairs, DType::BF16) == nullptr)
    return "this CPU multiplies no pairs of bf16";
  if (form.accumulator != DType::F32 || factor_of(region, form, form.left).dtype != DType::BF16 ||
      factor_of(region, form, form.right).dtype != DType::BF16)
    return "its factors are not bf16, summed in f32";
  return "";
}

std::string integer_pairs_refused(const Region& region, const ContractionForm& form,
                                  const Target& target) {
  const auto multiplies = [&](const Side& side) {
    const MatrixUnit* unit =
        target.unit(FragmentLayout::Pairs, paired_factor_of(region, form, side).dtype);
    return unit != nullptr && unit->accumulator == form.accumulator;
  };
  if (form.accumulator != DType::I32 || !multiplies(form.left) || !multiplies(form.right))
    return "its factors are no narrow integers, summed in i32";
  return "";
}

std::vector<Schedule> contraction_space(const Region& region, const ContractionForm& form,
                                        const Target& target) {
  const std::int64_t vector = fitting_vector(form, target);
  const Problem single = problem_of(form, target, vector);
  // Panels of single numbers are read where they lie.
  const bool pairs = (pairs_refused(region, form, target).empty() ||
                      integer_pairs_refused(region, form, target).empty()) &&
                     single.depth > 1 && (form.right.tile == 0 || form.right.pairs);
  const Problem p = pairs ? in_pairs(single) : single;
  std::vector<Schedule> space;
  const auto add = [&](Schedule s) {
    if (std::find(space.begin(), space.end(), s) == space.end())
      space.push_back(std::move(s));
  };
  if (matrix_refused(region, form, target).empty())
    for (Schedule& s : matrix_space(region, form, target))
      add(std::move(s));
  const std::size_t first = space.size();
  const auto tiles = register_tiles(p, form.right.tile);
  for (std::size_t i = 0; i < tiles.size() && i < 4; ++i)
    add(make_schedule(form, p, tiles[i].mr, tiles[i].nv));
  // Windows are copied where their vectors would be gathered into panels, again and again.
  double least = tiles[0].cost * double(p.depth * p.batch) +
                 cycles_of_packing(region, form, p) * double(p.batch);
  if (const auto w = pairs ? std::nullopt : by_whole_vectors(region, form, target, vector)) {
    const double together = w->tiles[0].cost * double(p.depth * p.batch),
                 apart = tiles[0].cost * double(p.depth * p.batch) +
                         cycles_of_crossing(region, form, p) * double(p.batch);
    std::vector<Schedule> those;
    for (std::size_t i = 0; i < w->tiles.size() && i < 2; ++i) {
      those.push_back(make_schedule(w->form, w->problem, w->tiles[i].mr, w->tiles[i].nv));
      those.back().knobs["padded"] = 1;
    }
    const bool best = together < apart;
    space.insert(best ? space.begin() + std::ptrdiff_t(first) : space.end(), those.begin(),
                 those.end());
  }
  const bool floats = pairs_refused(region, form, target).empty();
  for (const auto& w : {by_windows(region, form, target),
                        by_copy(region, form, target, vector, true, pairs && floats)}) {
    if (!w)
      continue;
    const auto windowed = register_tiles(w->problem);
    const double together = cycles_of_copies(region, *w, windowed[0]);
    // Pairs multiply twice as fast: beside them, single elements are for searches.
    const bool best = p.pairs == w->problem.pairs && together < least;
    std::vector<Schedule> those;
    for (std::size_t i = 0; i < windowed.size() && i < 2; ++i)
      those.push_back(windowed_schedule(*w, windowed[i].mr, windowed[i].nv));
    space.insert(best ? space.begin() + std::ptrdiff_t(first) : space.end(), those.begin(),
                 those.end());
    least = best ? together : least;
  }
  const Schedule best = space[first];
  // Few tiles and a long depth: weight gradients of small layers. Where shares are the first choice
  // follows from the shape alone, so that results do not depend on the workers.
  const std::int64_t count = p.batch * ceil_quotient(p.rows, best.knob("mr", 1)) *
                             ceil_quotient(p.columns, best.knob("nr", 1));
  for (const std::int64_t shares : {kShares, kShares / 4, 4 * kShares})
    if (count <= kFewTiles && p.depth >= shares * kShareDepth && form.depth.extent.constant()) {
      Schedule s = best;
      s.split_reduce = shares;
      s.knobs["kc"] = std::min<std::int64_t>(s.knob("kc", 1), p.depth / shares);
      s.knobs["mc"] = round_up<std::int64_t>(p.rows, s.knob("mr", 1));
      if (shares == kShares && count <= kFewestTiles)
        space.insert(space.begin() + std::ptrdiff_t(first), s);
      else
        add(s);
      s.knobs["shared"] = other_sharing(s);
      add(s);
    }
  const auto with = [&](const std::string& knob, std::int64_t value) {
    Schedule s = best;
    s.knobs[knob] = value;
    add(std::move(s));
  };
  // The whole depth in one part: no sums wait in memory, and panels of the right side that all
  // workers pack lie in the second cache.
  for (std::size_t i = 0; i < tiles.size() && i < 3; ++i) {
    Schedule s = make_schedule(form, p, tiles[i].mr, tiles[i].nv);
    const std::int64_t nr = s.knob("nr", 1);
    if (s.knob("kc", 1) >= p.depth || 4 * nr * p.depth * p.bytes > 3 * p.l2)
      continue;
    s.knobs["kc"] = p.depth;
    add(s);
    s.knobs["pack_right"] = 1;
    s.knobs["shared"] = kSharedBoth;
    add(s);
    s.knobs["nc"] = 2 * nr;
    add(s);
  }
  for (std::size_t i = 0; pairs && i < tiles.size() && i < 2; ++i)
    add(make_schedule(form, single, tiles[i].mr, tiles[i].nv));
  for (const std::int64_t kc : {256, 512})
    if (kc < p.depth)
      with("kc", kc);
  with("unroll", 1);
  with("unroll", 4);
  for (const char* pack : {"pack_left", "pack_right"})
    if (pack[5] == 'l' ? (pairs ? form.left.words : form.left.plain)
                       : (pairs ? form.right.pairs : form.right.plain))
      with(pack, 1 - best.knob(pack, 1));
  with("shared", other_sharing(best));
  if (best.knob("pack_left", 1) != 0 && best.knob("shared", 1) != 0)
    with("shared", kSharedBoth + kSharedRight - best.knob("shared", 1));
  with("mc", 2 * best.knob("mc", 1));
  if (best.knob("mc", 1) > 2 * best.knob("mr", 1))
    with("mc", best.knob("mc", 1) / 2);
  with("nc", 2 * best.knob("nc", 1));
  if (best.knob("nc", 1) > 2 * best.knob("nr", 1))
    with("nc", best.knob("nc", 1) / 2);
  // Narrower vectors let a CPU that runs wide ones at half speed, or few columns, do better.
  if (p.lanes > 4) {
    const Problem half = problem_of(form, target, vector / 2);
    const auto narrow = register_tiles(half);
    for (std::size_t i = 0; i < narrow.size() && i < 2; ++i)
      add(make_schedule(form, pairs ? in_pairs(half) : half, narrow[i].mr, narrow[i].nv));
  }
  // Two changes at a time, for those who have the time.
  for (std::size_t i = 4; i < tiles.size() && i < 8; ++i)
    add(make_schedule(form, p, tiles[i].mr, tiles[i].nv));
  for (std::size_t i = 1; i < tiles.size() && i < 4; ++i) {
    Schedule s = make_schedule(form, p, tiles[i].mr, tiles[i].nv);
    s.knobs["unroll"] = 4;
    add(s);
    s.knobs["unroll"] = 2;
    s.knobs["shared"] = other_sharing(s);
    add(s);
    if (form.right.plain) {
      s = make_schedule(form, p, tiles[i].mr, tiles[i].nv);
      s.knobs["pack_right"] = 1 - s.knob("pack_right", 1);
      add(s);
    }
  }
  return space;
}

std::int64_t preferred_tile(const ContractionForm& form, const Target& target, bool pairs) {
  Problem p = problem_of(form, target, target.vector_bytes);
  if (pairs)
    p.depth = std::max<std::int64_t>(p.depth / 2, 1);
  const auto tiles = register_tiles(p);
  for (const RegisterTile& tile : tiles) // panels that are all full cost nothing to leave
    if (tile.cost < kAlmost * tiles[0].cost && p.columns % (std::int64_t(tile.nv) * p.lanes) == 0)
      return std::int64_t(tile.nv / p.slices) * p.lanes;
  return std::int64_t(tiles[0].nv / p.slices) * p.lanes;
}

double worker_bytes(const ContractionForm& form, const Tiles& t) {
  const auto size = [](const Expr& e) { return double(e.constant().value_or(1024)); };
  const double rows = std::min(double(t.mc), size(form.rows.extent) + t.mr),
               columns = std::min(double(t.nc), size(form.columns.extent) + t.nr()),
               depth = std::max(double(t.kc), size(steps_of(form, t)));
  double elements = depth > double(t.kc) ? rows * columns : 0;
  if (t.own_left)
    elements += rows * double(t.kc);
  if (!t.shared)
    elements +=
        (t.pack_left ? rows * depth : 0) + (t.pack_right && !t.window ? columns * depth : 0);
  return elements * double(size_of(form.accumulator));
}

} // namespace egret::kernel

// Contractions by tiles of a matrix unit (AMX): when, in which sizes, and from which memory.
#include "kernel/contraction_tiles.h"

#include "kernel/analysis.h"
#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr std::int64_t kColumns = kTileBytes / 4; ///< of a tile of sums
constexpr std::int64_t kDeep = 2 * kChunk;        ///< elements of the depth in a chunk

/// Workers, and rows for each of them, that make packing cheap for all to do.
constexpr std::int64_t kFewWorkers = 4, kManyRows = 128;

bool is_whole_depth(const ContractionForm& form) {
  return form.depth.axes.size() == 1 && form.depth.extent.divisor() % kDeep == 0;
}

} // namespace

std::string matrix_refused(const Region& region, const ContractionForm& form,
                           const Target& target) {
  if (target.unit(FragmentLayout::Tiles) == nullptr)
    return "this CPU multiplies no tiles";
  if (form.columns.slices > 1)
    return "slices of its result are combined";
  if (form.accumulator != DType::F32 || factor_of(region, form, form.left).dtype != DType::BF16 ||
      factor_of(region, form, form.right).dtype != DType::BF16)
    return "its factors are not bf16, summed in f32";
  return "";
}

bool left_is_tiles(const Region& region, const ContractionForm& form) {
  const Factor factor = factor_of(region, form, form.left);
  if (!factor.is_load || factor.dtype != DType::BF16 || !is_whole_depth(form) ||
      form.rows.axes.size() != 1 || form.rows.extent.divisor() % kTileRows != 0)
    return false;
  const Stage& stage = region.stages[std::size_t(form.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(factor.value)].load)];
  return stride_of(region, stage, load, form.depth.axes[0]) == 1 &&
         stride_of(region, stage, load, form.rows.axes[0]).value_or(0) > 0;
}

bool right_is_tiles(const Region& region, const ContractionForm& form) {
  return form.right.pairs && form.right.tile % kColumns == 0 && is_whole_depth(form) &&
         factor_of(region, form, form.right).is_load;
}

Tiles matrix_sizes(const Schedule& schedule, const Region& region, const ContractionForm& form) {
  Tiles t;
  t.matrix = true;
  t.width = 2;
  t.lanes = int(kColumns);
  t.mr = int(
      round_up<std::int64_t>(std::clamp<std::int64_t>(schedule.knob("mr", 32), 1, 64), kTileRows));
  t.nv = int(
      round_up<std::int64_t>(std::clamp<std::int64_t>(schedule.knob("nr", 32), 1, 64), kColumns) /
      kColumns);
  t.unroll = int(std::clamp<std::int64_t>(schedule.knob("unroll", 1), 1, 16));
  t.late = schedule.knob("late", 0) != 0;
  t.kc = round_up<std::int64_t>(std::max<std::int64_t>(schedule.knob("kc", 256), 1), kChunk);
  if (const auto depth = form.depth.extent.constant(); depth && *depth > 0)
    t.kc = std::min(t.kc, round_up<std::int64_t>(*depth, kDeep) / 2);
  t.mc = round_up<std::int64_t>(std::max<std::int64_t>(schedule.knob("mc", 256), 1), t.mr);
  t.nc = round_up<std::int64_t>(std::max<std::int64_t>(schedule.knob("nc", 512), 1), t.nr());
  t.pack_left = schedule.knob("pack_left", 1) != 0 || !left_is_tiles(region, form);
  t.pack_right = schedule.knob("pack_right", 1) != 0 || !right_is_tiles(region, form) ||
                 form.right.tile % t.nr() != 0;
  t.shared = schedule.knob("shared", 1) != 0 && (t.pack_left || t.pack_right);
  return t;
}

std::vector<Schedule> matrix_space(const Region& region, const ContractionForm& form,
                                   const Target& target) {
  const std::int64_t rows = usual_size(form.rows.extent), columns = usual_size(form.columns.extent),
                     steps = round_up<std::int64_t>(usual_size(form.depth.extent), kDeep) / 2,
                     batch = usual_size(form.batch.extent);
  const std::int64_t workers = std::max(target.workers, 1);
  const bool left_here = left_is_tiles(region, form), right_here = right_is_tiles(region, form);
  std::vector<Schedule> space;
  struct Sizes {
    std::int64_t mr, nr, kc, mc, nc;
    bool pack_left, shared;
    int unroll = 1;
    bool late = false;
  };
  const auto add = [&](Sizes z) {
    Schedule s;
    s.generator = "contraction";
    s.mma = kMatrix;
    // Pieces of rows that workers can share evenly.
    std::int64_t pieces = (rows + z.mc - 1) / z.mc;
    if (batch < 2 * workers && rows >= workers * z.mr && pieces < 4 * workers)
      pieces = round_up<std::int64_t>(pieces, workers);
    s.knobs = {
        {"mr", z.mr},
        {"nr", z.nr},
        {"kc", std::min(z.kc, steps)},
        {"mc", round_up<std::int64_t>((rows + pieces - 1) / pieces, z.mr)},
        {"nc", std::min(round_up<std::int64_t>(z.nc, z.nr), round_up<std::int64_t>(columns, z.nr))},
        {"unroll", z.unroll},
        {"pack_left", z.pack_left ? 1 : 0},
        {"pack_right", right_here && form.right.tile % z.nr == 0 ? 0 : 1},
        {"shared", z.shared ? 1 : 0}};
    if (z.late)
      s.knobs["late"] = 1;
    if (std::find(space.begin(), space.end(), s) == space.end())
      space.push_back(std::move(s));
  };
  // Two by two tiles of sums make four products of four loads; where there are few rows or few
  // columns, up to four tiles of the other kind.
  Sizes first{32, 32, steps, rows, columns, true, true};
  if (rows <= kTileRows) {
    first.mr = kTileRows;
    first.nr = std::min<std::int64_t>(64, round_up<std::int64_t>(columns, kColumns));
  } else if (columns <= kColumns) {
    first.nr = kColumns;
    first.mr = std::min<std::int64_t>(64, round_up<std::int64_t>(rows, kTileRows));
  }
  // A block of the left side takes half of the second cache, with the whole depth as long as that
  // leaves many rows: then no sums wait.
  constexpr std::int64_t kWord = 4, kMostSteps = 2048, kFewColumns = 512;
  const std::int64_t half = target.l2_bytes / 2;
  const auto block = [&](std::int64_t kc) {
    return std::clamp<std::int64_t>(half / (kc * kWord) / first.mr * first.mr, first.mr, 512);
  };
  const std::int64_t parts = (steps + kMostSteps - 1) / kMostSteps;
  first.kc = round_up<std::int64_t>((steps + parts - 1) / parts, kChunk);
  first.mc = block(first.kc);
  first.nc = parts == 1 ? columns : kFewColumns;
  // A right side of which all workers can have a copy of their own is packed sooner than they meet.
  const bool own = columns * steps * kWord <= half && workers <= kFewWorkers &&
                   rows >= workers * kManyRows && parts == 1;
  if (own) {
    first.mc = (rows + workers - 1) / workers;
    first.pack_left = !left_here;
  }
  first.shared = !own && batch < 2 * workers;
  const auto with = [&](auto change) {
    Sizes z = first;
    change(z);
    add(z);
  };
  add(first);
  with([](Sizes& z) { z.late = true; });
  if (left_here)
    for (const bool late : {false, true})
      with([&](Sizes& z) {
        z.pack_left = !z.pack_left;
        z.late = late;
      });
  with([](Sizes& z) { z.shared = !z.shared; });
  with([](Sizes& z) { z.unroll = 2; });
  with([](Sizes& z) { z.nc = 128; });
  // A panel of the right side in the first cache while the rows go by.
  const std::int64_t near =
      std::max<std::int64_t>(target.l1_bytes / 3 / (first.nr * kWord), kChunk) / kChunk * kChunk;
  for (const std::int64_t kc : {near, 2 * near, 4 * near})
    for (const std::int64_t nc : {std::int64_t(128), kFewColumns})
      with([&](Sizes& z) {
        z.kc = kc;
        z.mc = 256;
        z.nc = nc;
        z.shared = batch < 2 * workers;
        z.pack_left = true;
      });
  for (const std::int64_t mc : {64, 128, 256, 512})
    with([&](Sizes& z) { z.mc = mc; });
  if (first.mr == 32 && first.nr == 32)
    for (const auto& [mr, nr] : {std::pair{16, 48}, {16, 64}, {64, 16}})
      for (const std::int64_t kc : {near, first.kc})
        with([&, mr = mr, nr = nr](Sizes& z) {
          z.mr = mr;
          z.nr = nr;
          z.kc = kc;
          z.mc = 256;
          z.nc = kFewColumns;
        });
  return space;
}

} // namespace egret::kernel

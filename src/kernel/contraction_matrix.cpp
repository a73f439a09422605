// Contractions by tiles of a matrix unit (AMX): when, in which sizes, and from which memory.
#include "kernel/contraction_tiles.h"

#include "kernel/analysis.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr std::int64_t kColumns = kTileBytes / 4; ///< of a tile of sums
constexpr std::int64_t kDeep = 2 * kChunk;        ///< elements of the depth in a chunk

std::int64_t ceil_to(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

std::int64_t size_for(const Expr& extent) {
  constexpr std::int64_t kUsual = 1024; // what symbolic extents are taken for
  return std::max<std::int64_t>(
      extent.constant().value_or(std::clamp(kUsual, extent.lower(), extent.upper())), 1);
}

bool is_whole_depth(const ContractionForm& form) {
  return form.depth.axes.size() == 1 && form.depth.extent.divisor() % kDeep == 0;
}

} // namespace

std::string matrix_refused(const Region& region, const ContractionForm& form,
                           const Target& target) {
  if (!target.has_amx)
    return "this CPU multiplies no tiles";
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
  t.mr = int(ceil_to(std::clamp<std::int64_t>(schedule.knob("mr", 32), 1, 64), kTileRows));
  t.nv =
      int(ceil_to(std::clamp<std::int64_t>(schedule.knob("nr", 32), 1, 64), kColumns) / kColumns);
  t.unroll = int(std::clamp<std::int64_t>(schedule.knob("unroll", 1), 1, 16));
  t.kc = ceil_to(std::max<std::int64_t>(schedule.knob("kc", 256), 1), kChunk);
  if (const auto depth = form.depth.extent.constant(); depth && *depth > 0)
    t.kc = std::min(t.kc, ceil_to(*depth, kDeep) / 2);
  t.mc = ceil_to(std::max<std::int64_t>(schedule.knob("mc", 256), 1), t.mr);
  t.nc = ceil_to(std::max<std::int64_t>(schedule.knob("nc", 512), 1), t.nr());
  t.pack_left = schedule.knob("pack_left", 1) != 0 || !left_is_tiles(region, form);
  t.pack_right = schedule.knob("pack_right", 1) != 0 || !right_is_tiles(region, form) ||
                 form.right.tile % t.nr() != 0;
  t.shared = schedule.knob("shared", 1) != 0 && (t.pack_left || t.pack_right);
  return t;
}

std::vector<Schedule> matrix_space(const Region& region, const ContractionForm& form,
                                   const Target& target) {
  const std::int64_t rows = size_for(form.rows.extent), columns = size_for(form.columns.extent),
                     steps = ceil_to(size_for(form.depth.extent), kDeep) / 2,
                     batch = size_for(form.batch.extent);
  const std::int64_t workers = std::max(target.workers, 1);
  const bool left_here = left_is_tiles(region, form), right_here = right_is_tiles(region, form);
  std::vector<Schedule> space;
  const auto add = [&](std::int64_t mr, std::int64_t nr, std::int64_t kc, std::int64_t mc,
                       std::int64_t nc, bool pack_left, bool shared) {
    Schedule s;
    s.generator = "contraction";
    s.mma = kMatrix;
    s.knobs["mr"] = mr;
    s.knobs["nr"] = nr;
    s.knobs["kc"] = std::min(kc, steps);
    // Pieces of rows that workers can share evenly.
    std::int64_t pieces = (rows + mc - 1) / mc;
    if (batch < 2 * workers && rows >= workers * mr && pieces < 4 * workers)
      pieces = ceil_to(pieces, workers);
    s.knobs["mc"] = ceil_to((rows + pieces - 1) / pieces, mr);
    s.knobs["nc"] = std::min(nc, ceil_to(columns, nr));
    s.knobs["unroll"] = 1;
    s.knobs["pack_left"] = pack_left ? 1 : 0;
    s.knobs["pack_right"] = right_here && form.right.tile % nr == 0 ? 0 : 1;
    s.knobs["shared"] = shared ? 1 : 0;
    if (std::find(space.begin(), space.end(), s) == space.end())
      space.push_back(std::move(s));
  };
  // Two by two tiles of sums make four products of four loads; where there are few rows or few
  // columns, up to four tiles of the other kind.
  std::int64_t mr = 32, nr = 32;
  if (rows <= kTileRows) {
    mr = kTileRows;
    nr = std::min<std::int64_t>(64, ceil_to(columns, kColumns));
  } else if (columns <= kColumns) {
    nr = kColumns;
    mr = std::min<std::int64_t>(64, ceil_to(rows, kTileRows));
  }
  // A panel of the right side is to stay in the first cache while the rows go by, and a block of
  // the left one in the second.
  const std::int64_t near =
      std::max<std::int64_t>(target.l1_bytes * 2 / 3 / (nr * 4), kChunk) / kChunk * kChunk;
  const std::int64_t word = 4;
  const auto block = [&](std::int64_t kc) {
    return std::clamp<std::int64_t>(target.l2_bytes / 4 / (std::min(kc, steps) * word), mr, 512);
  };
  const bool many = batch >= 2 * workers;
  for (const std::int64_t kc : {near, 2 * near, steps})
    for (const bool pack : {true, false}) {
      if (!pack && !left_here)
        continue;
      for (const bool shared : {!many, many})
        add(mr, nr, kc, block(kc), kc >= steps ? columns : 512, pack, shared);
    }
  for (const std::int64_t mc : {64, 128, 256, 512})
    for (const std::int64_t nc : {256, 1024, 4096})
      add(mr, nr, near, mc, nc, true, !many);
  if (mr == 32 && nr == 32) {
    add(16, 64, near / 2, block(near / 2), 512, true, !many);
    add(64, 16, 2 * near, block(2 * near), 512, true, !many);
  }
  return space;
}

} // namespace egret::kernel

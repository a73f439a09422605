#include "kernel/gpu_row_maps.h"

#include "kernel/analysis.h"
#include "kernel/emit.h"
#include "kernel/gpu_nest.h"
#include "kernel/map_axes.h"
#include "support/checked.h"

#include <algorithm>

namespace egret::kernel {

namespace {

constexpr std::int64_t kMostRounds = 16; ///< points of a thread: they are unrolled

std::int64_t rounds_of(const RowMap& map, const StationaryTiles& tiles) {
  return ceil_quotient(tiles.rows * map.points, tiles.shares * tiles.threads);
}

} // namespace

std::optional<RowMap> find_row_map(const Region& region, std::int64_t rows) {
  if (!is_plain_map(region) || rows < 1)
    return std::nullopt;
  RowMap map;
  std::int64_t points = 1;
  for (std::size_t a = 0; a < region.axes.size(); ++a) {
    const Expr& extent = region.axes[a].extent;
    if (!extent.is_constant())
      return std::nullopt;
    points *= extent.value();
    if (map.axis < 0 && extent == Expr(rows))
      map.axis = static_cast<int>(a);
  }
  if (map.axis < 0 && !region.axes.empty() && region.axes[0].extent.value() % rows == 0)
    map.axis = 0; // with another one in it
  if (map.axis < 0)
    return std::nullopt;
  map.per_row = region.axes[static_cast<std::size_t>(map.axis)].extent.value() / rows;
  map.points = points / rows;
  return map;
}

bool fits(const RowMap& map, const StationaryTiles& tiles) {
  return rounds_of(map, tiles) <= kMostRounds;
}

KernelProgram row_map_program(const Region& region, const RowMap& map, std::int64_t rows,
                              const StationaryTiles& tiles) {
  ProgramBuilder b(region.name);
  Emitter e(b, region);
  e.load_policy = CachePolicy::Default;
  Launch launch;
  launch.threads = tiles.threads;
  launch.blocks_per_core = 1;
  launch.workers = Expr(ceil_quotient(rows, tiles.rows));
  const std::int64_t points = tiles.rows * map.points, together = tiles.shares * tiles.threads;
  const Expr thread = thread_variable(tiles.threads);
  const Expr worker =
      tiles.shares == 1
          ? thread
          : stationary_share(tiles.shares) * Expr(std::int64_t{tiles.threads}) + thread;
  b.grid_loop(launch.workers, [&](const Expr& number) {
    for (std::int64_t first = 0; first < points; first += together) {
      const Expr at = worker + Expr(first);
      b.when({{at, Expr(0), Expr(points)}}, [&] {
        Point p;
        p.at.resize(region.axes.size());
        Expr rest = floormod(at, map.points);
        for (std::size_t a = region.axes.size(); a-- > 0;) {
          const bool has_rows = static_cast<int>(a) == map.axis;
          const std::int64_t extent = has_rows ? map.per_row : region.axes[a].extent.value();
          p.at[a] = floormod(rest, extent);
          rest = floordiv(rest, extent);
        }
        const Expr row = number * Expr(tiles.rows) + floordiv(at, map.points);
        Expr& along = p.at[static_cast<std::size_t>(map.axis)];
        along = row * Expr(map.per_row) + along;
        p.mask = unproved({{row, Expr(0), Expr(rows)}});
        // All values before the first store: an output may take over the memory of an operand.
        std::vector<Value> values;
        for (const Output& out : region.outputs)
          values.push_back(e.result(out.stage, out.component, p));
        for (std::size_t o = 0; o < values.size(); ++o)
          e.store(static_cast<int>(o), p, values[o]);
      });
    }
  });
  KernelProgram program = b.finish(launch);
  verify(program);
  return program;
}

double row_map_seconds(const RowMap& map, const StationaryTiles& tiles) {
  // No GPU has measured these: the way to the second cache and back, and a few functions a point.
  constexpr double kOnce = 0.5e-6, kRound = 0.1e-6;
  return kOnce + kRound * static_cast<double>(rounds_of(map, tiles));
}

} // namespace egret::kernel

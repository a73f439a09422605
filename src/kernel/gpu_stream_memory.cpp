#include "kernel/gpu_stream_memory.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "support/checked.h"

#include <fmt/format.h>

namespace egret::kernel {

int stream_columns(const ContractionForm& sum, const StreamTiles& tiles) {
  return int(round_up<std::int64_t>(sum.depth.extent.value(), tiles.singles ? 8 : 16));
}

StreamMemory::StreamMemory(Emitter& emitter, const StreamForm& form, const StreamTiles& tiles)
    : r_(emitter.region()), e_(emitter), b_(emitter.builder()), f_(form), t_(tiles),
      thread_(thread_variable(tiles.threads())) {
  for (const ContractionForm& p : f_.products) {
    left_.push_back(make_tile(p, p.left, "rows"));
    right_.push_back(make_tile(p, p.right, "places"));
  }
  for (const ContractionForm& s : f_.sums)
    summed_.push_back(make_tile(s, s.right, "places"));
  vectors_ = place_vectors(r_, f_);
  for (std::size_t i = 0; i < vectors_.size(); ++i)
    vectors_[i].buffer =
        b_.shared(fmt::format("vector{}", i), r_.operands[std::size_t(vectors_[i].operand)].dtype,
                  std::int64_t(t_.stages) * t_.all_places());
}

void StreamMemory::copy_rows(const Point& batch, const Expr& first) {
  for (const auto& t : left_)
    t->side->copy(batch, first, Expr(0), Expr(0));
}

void StreamMemory::copy_places(const Point& batch, const std::vector<const SharedTile*>& ring,
                               const Expr& first, const Expr& piece) {
  for (const SharedTile* t : ring)
    t->side->copy(batch, first, Expr(0), piece);
  for (const PlaceVector& v : vectors_)
    copy_vector(v, batch, first, piece);
}

void StreamMemory::provide_vectors(const Point& point, const Expr& in_tile, const Expr& piece) {
  for (const PlaceVector& v : vectors_) {
    const Expr at = piece * Expr(t_.all_places()) + in_tile + lane_variable(2);
    const Stage& reading = r_.stages[std::size_t(v.stage)];
    e_.provide_load(reading, reading.loads[std::size_t(v.load)], point, b_.load(v.buffer, at, 2));
  }
}

/// A tile of a side, or one that is there already and has the same elements.
std::shared_ptr<SharedTile> StreamMemory::make_tile(const ContractionForm& form, const Side& side,
                                                    const std::string& name) {
  const bool is_left = &side == &form.left;
  const int stages = is_left ? 1 : t_.stages, panel = is_left ? t_.rows() : t_.all_places();
  auto tile = std::make_shared<SharedTile>();
  tile->form = form;
  const Factor factor = factor_of(r_, form, side);
  if (factor.is_load)
    tile->element = element_of_tile(r_, form, factor, &tile->operand);
  for (const auto& other : tiles_)
    if (tile->operand >= 0 && !is_left && other->tiles.stages == stages &&
        other->operand == tile->operand && other->element == tile->element &&
        other->form.depth.extent == form.depth.extent)
      return other;
  tile->tiles.unit = GpuUnit::Mma;
  tile->tiles.bm = tile->tiles.bn = panel;
  tile->tiles.bk =
      int(round_up<std::int64_t>(form.depth.extent.value(), t_.singles ? 8 : kStreamSteps));
  tile->tiles.stages = stages;
  tile->tiles.warps_m = t_.warps * t_.across;
  tile->tiles.warps_n = 1;
  const Side& own = is_left ? tile->form.left : tile->form.right;
  tile->side = std::make_unique<SharedSide>(e_, tile->form, own, is_left ? f_.rows : f_.places,
                                            fmt::format("{}{}", name, tiles_.size()), panel,
                                            t_.singles || own.order != Side::Order::Panel,
                                            t_.singles ? DType::F32 : factor.dtype, tile->tiles);
  tiles_.push_back(tile);
  return tile;
}

Expr element_of_tile(const Region& region, const ContractionForm& form, const Factor& factor,
                     int* operand) {
  const Stage& stage = region.stages[std::size_t(form.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(factor.value)].load)];
  Point p;
  p.at.resize(region.axes.size());
  for (std::size_t a = 0; a < region.axes.size(); ++a)
    p.at[a] = Expr::axis(int(a), region.axes[a].extent);
  for (std::size_t i = 0; i < form.depth.axes.size(); ++i) {
    const Expr& extent = region.axes[std::size_t(form.depth.axes[i])].extent;
    p.at[std::size_t(form.depth.axes[i])] = Expr::axis(int(region.axes.size() + i), extent);
  }
  *operand = load.number;
  return element_at(region, stage, load, p).value_or(Expr(0));
}

namespace {

void add_vector(const Region& r, const StreamForm& f, int s, int l,
                std::vector<PlaceVector>& vectors) {
  const Stage& stage = r.stages[std::size_t(s)];
  const Load& load = stage.loads[std::size_t(l)];
  Point p;
  for (std::size_t a = 0; a < r.axes.size(); ++a)
    p.at.push_back(Expr::axis(int(a), r.axes[a].extent));
  PlaceVector v{s, l, load.number, element_at(r, stage, load, p).value_or(Expr(0))};
  for (const PlaceVector& other : vectors)
    if (other.operand == v.operand && other.element == v.element)
      return;
  const Operand& operand = r.operands[std::size_t(load.number)];
  const Expr rest = v.element - Expr::axis(f.places.axes[0], f.places.extent);
  v.together = 4;
  while (v.together > 1 &&
         (rest.divisor() % v.together != 0 || f.places.extent.divisor() % v.together != 0 ||
          operand.alignment % (4 * v.together) != 0))
    v.together /= 2;
  vectors.push_back(std::move(v));
}

} // namespace

std::vector<PlaceVector> place_vectors(const Region& r, const StreamForm& f) {
  std::vector<PlaceVector> vectors;
  if (f.places.axes.size() != 1)
    return vectors;
  const int place = f.places.axes[0];
  for (std::size_t s = 0; s < r.stages.size(); ++s)
    for (std::size_t l = 0; l < r.stages[s].loads.size(); ++l) {
      const Stage& stage = r.stages[s];
      const Load& load = stage.loads[l];
      if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
          r.operands[std::size_t(load.number)].role != Role::Tensor ||
          size_of(r.operands[std::size_t(load.number)].dtype) != 4 ||
          stride_of(r, stage, load, place) != 1)
        continue;
      const auto axes = axes_of_load(r, stage, load);
      bool of_place = true;
      for (std::size_t a = 0; a < axes.size(); ++a)
        of_place = of_place && (!axes[a] || int(a) == place || contains(f.batch.axes, int(a)));
      if (of_place)
        add_vector(r, f, int(s), int(l), vectors);
    }
  return vectors;
}

void StreamMemory::copy_vector(const PlaceVector& v, const Point& batch, const Expr& first,
                               const Expr& piece) {
  const Stage& reading = r_.stages[std::size_t(v.stage)];
  const Load& load = reading.loads[std::size_t(v.load)];
  for (int done = 0; done < t_.all_places(); done += t_.threads() * v.together) {
    const Expr in_tile = (thread_ + Expr(done / v.together)) * Expr(v.together);
    Point p = batch;
    p.at[std::size_t(f_.places.axes[0])] = first + in_tile;
    std::vector<Guard> some;
    if (done + t_.threads() * v.together > t_.all_places())
      some.push_back({in_tile, Expr(0), Expr(t_.all_places())});
    b_.when(std::move(some), [&] {
      b_.copy_async(v.buffer, piece * Expr(t_.all_places()) + in_tile, e_.operand_buffer(v.operand),
                    element_at(r_, reading, load, p).value(), v.together,
                    {{first + in_tile, Expr(0), f_.places.extent}});
    });
  }
}

} // namespace egret::kernel

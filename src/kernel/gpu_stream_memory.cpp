#include "kernel/gpu_stream_memory.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"

#include <fmt/format.h>

namespace egret::kernel {

StreamMemory::StreamMemory(Emitter& emitter, const StreamForm& form, const StreamTiles& tiles)
    : r_(emitter.region()), e_(emitter), b_(emitter.builder()), f_(form), t_(tiles),
      thread_(thread_variable(32 * tiles.warps)) {
  for (const ContractionForm& p : f_.products) {
    left_.push_back(make_tile(p, p.left, "rows"));
    right_.push_back(make_tile(p, p.right, "places"));
  }
  for (const ContractionForm& s : f_.sums)
    summed_.push_back(make_tile(s, s.right, "places"));
  find_vectors();
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
    const Expr at = piece * Expr(t_.places) + in_tile + lane_variable(2);
    const Stage& reading = r_.stages[std::size_t(v.stage)];
    const auto element = element_at(r_, reading, reading.loads[std::size_t(v.load)], point);
    e_.provide_load(v.operand, element.value(), b_.load(v.buffer, at, 2));
  }
}

/// A tile of a side, or one that is there already and has the same elements.
std::shared_ptr<SharedTile> StreamMemory::make_tile(const ContractionForm& form, const Side& side,
                                                    const std::string& name) {
  const bool is_left = &side == &form.left;
  const int stages = is_left ? 1 : t_.stages, panel = is_left ? t_.rows() : t_.places;
  auto tile = std::make_shared<SharedTile>();
  tile->form = form;
  const Factor factor = factor_of(r_, form, side);
  if (factor.is_load)
    tile->element = stand_in(form, factor, &tile->operand);
  for (const auto& other : tiles_)
    if (tile->operand >= 0 && !is_left && other->tiles.stages == stages &&
        other->operand == tile->operand && other->element == tile->element &&
        other->form.depth.extent == form.depth.extent)
      return other;
  tile->tiles.unit = GpuUnit::Mma;
  tile->tiles.bm = tile->tiles.bn = panel;
  tile->tiles.bk =
      int((form.depth.extent.value() + kStreamSteps - 1) / kStreamSteps * kStreamSteps);
  tile->tiles.stages = stages;
  tile->tiles.warps_m = t_.warps;
  tile->tiles.warps_n = 1;
  const Side& own = is_left ? tile->form.left : tile->form.right;
  tile->side = std::make_unique<SharedSide>(
      e_, tile->form, own, is_left ? f_.rows : f_.places, fmt::format("{}{}", name, tiles_.size()),
      panel, own.order != Side::Order::Panel, factor.dtype, tile->tiles);
  tiles_.push_back(tile);
  return tile;
}

/// The element that a factor loads, with the axes of the panel and of the depth replaced by
/// symbols: equal for equal tiles of different products.
Expr StreamMemory::stand_in(const ContractionForm& form, const Factor& factor, int* operand) const {
  const Stage& stage = r_.stages[std::size_t(form.stage)];
  const Load& load = stage.loads[std::size_t(stage.body[std::size_t(factor.value)].load)];
  Point p;
  p.at.resize(r_.axes.size());
  for (std::size_t a = 0; a < r_.axes.size(); ++a)
    p.at[a] = Expr::axis(int(a), r_.axes[a].extent);
  for (std::size_t i = 0; i < form.depth.axes.size(); ++i) {
    const Expr& extent = r_.axes[std::size_t(form.depth.axes[i])].extent;
    p.at[std::size_t(form.depth.axes[i])] = Expr::axis(int(r_.axes.size() + i), extent);
  }
  *operand = load.number;
  return element_at(r_, stage, load, p).value_or(Expr(0));
}

/// Loads of 32 bits that depend on the place and not on the row.
void StreamMemory::find_vectors() {
  if (f_.places.axes.size() != 1)
    return;
  const int place = f_.places.axes[0];
  for (std::size_t s = 0; s < r_.stages.size(); ++s)
    for (std::size_t l = 0; l < r_.stages[s].loads.size(); ++l) {
      const Stage& stage = r_.stages[s];
      const Load& load = stage.loads[l];
      if (load.source != Source::Operand || !load.map.is_total() || !load.indirect.empty() ||
          r_.operands[std::size_t(load.number)].role != Role::Tensor ||
          size_of(r_.operands[std::size_t(load.number)].dtype) != 4 ||
          stride_of(r_, stage, load, place) != 1)
        continue;
      const auto axes = axes_of_load(r_, stage, load);
      bool of_place = true;
      for (std::size_t a = 0; a < axes.size(); ++a)
        of_place = of_place && (!axes[a] || int(a) == place || contains(f_.batch.axes, int(a)));
      if (of_place)
        add_vector(int(s), int(l));
    }
}

void StreamMemory::add_vector(int s, int l) {
  const Stage& stage = r_.stages[std::size_t(s)];
  const Load& load = stage.loads[std::size_t(l)];
  Point p;
  for (std::size_t a = 0; a < r_.axes.size(); ++a)
    p.at.push_back(Expr::axis(int(a), r_.axes[a].extent));
  PlaceVector v{s, l, load.number, element_at(r_, stage, load, p).value_or(Expr(0))};
  for (const PlaceVector& other : vectors_)
    if (other.operand == v.operand && other.element == v.element)
      return;
  const Operand& operand = r_.operands[std::size_t(load.number)];
  const Expr rest = v.element - Expr::axis(f_.places.axes[0], f_.places.extent);
  v.together = 4;
  while (v.together > 1 &&
         (rest.divisor() % v.together != 0 || f_.places.extent.divisor() % v.together != 0 ||
          operand.alignment % (4 * v.together) != 0))
    v.together /= 2;
  v.buffer = b_.shared(fmt::format("vector{}", vectors_.size()), operand.dtype,
                       std::int64_t(t_.stages) * t_.places);
  vectors_.push_back(std::move(v));
}

void StreamMemory::copy_vector(const PlaceVector& v, const Point& batch, const Expr& first,
                               const Expr& piece) {
  const Stage& reading = r_.stages[std::size_t(v.stage)];
  const Load& load = reading.loads[std::size_t(v.load)];
  for (int done = 0; done < t_.places; done += 32 * t_.warps * v.together) {
    const Expr in_tile = (thread_ + Expr(done / v.together)) * Expr(v.together);
    Point p = batch;
    p.at[std::size_t(f_.places.axes[0])] = first + in_tile;
    std::vector<Guard> some;
    if (done + 32 * t_.warps * v.together > t_.places)
      some.push_back({in_tile, Expr(0), Expr(t_.places)});
    b_.when(std::move(some), [&] {
      b_.copy_async(v.buffer, piece * Expr(t_.places) + in_tile, e_.operand_buffer(v.operand),
                    element_at(r_, reading, load, p).value(), v.together,
                    {{first + in_tile, Expr(0), f_.places.extent}});
    });
  }
}

} // namespace egret::kernel

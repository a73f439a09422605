// Sums over the columns of a product of any depth, which is never stored: on GPUs of compute
// capability 9.0 its tiles are made by `wgmma`, and what a tile adds to a row's sums is all that
// leaves it: a maximum, the sum of exponentials beside it, the element of a class. Behind a barrier
// of the grid a warp combines what the tiles of a row have, in a fixed order.
#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_wgmma.h"
#include "kernel/knobs.h"
#include "kernel/label_terms.h"
#include "kernel/pass_states.h"
#include "kernel/stream_form.h"

#include <algorithm>

namespace egret::kernel {

namespace {

/// The only pass along the places, as one over rows in memory would be.
Passes pass_of(const StreamForm& form) {
  Passes p;
  p.count = 1;
  p.reductions = {form.row_stages};
  p.scaled_by = form.scaled_by;
  return p;
}

class RowSums : public TileSums {
public:
  RowSums(Emitter& emitter, const StreamForm& form, const GpuTiles& tiles)
      : e_(emitter), b_(emitter.builder()), r_(emitter.region()), f_(form), t_(tiles),
        passes_(pass_of(form)), lane_(floormod(thread_variable(tiles.threads()), 32)),
        rows_(form.batch.extent * form.rows.extent),
        across_(ceildiv(form.places.extent, Expr(tiles.bn))) {
    for (int stage : form.row_stages)
      partials_.push_back(
          Accumulator(e_, stage, 0, kArithmetic, form.places.extent).workspaces(rows_ * across_));
  }

  void take(const GpuTile& tile, const Expr& row, std::span<const VarId> variables) override {
    const ContractionForm& product = f_.products[0];
    const Expr first = floormod(lane_, 4) * Expr(2);
    for (int half = 0; half < 2; ++half) {
      const Expr mine = row + floordiv(lane_, 4) + Expr(8 * half);
      PassStates states = sums(2);
      Running running = states.start();
      // A few fragments at a time, so that their registers are free again soon.
      for (std::size_t j = 0; j < variables.size(); j += kTogether) {
        std::vector<Point> points;
        std::vector<std::vector<Guard>> inside;
        const std::size_t end = std::min(j + kTogether, variables.size());
        for (std::size_t k = j; k < end; ++k) {
          const ValueId four = b_.read(variables[k]);
          points.push_back(point_at(r_, product, tile, mine, first + Expr(8 * std::int64_t(k)), 2));
          inside.push_back(unproved(points.back().mask));
          e_.provide(product.stage, points.back(),
                     {e_.convert({b_.shuffle(four, four, {2 * half, 2 * half + 1}), DType::F32},
                                 r_.stages[std::size_t(product.stage)].yield_dtypes[0])});
        }
        std::vector<PassStates::Spot> spots;
        for (std::size_t k = 0; k < points.size(); ++k)
          spots.push_back({&points[k], Expr(0), inside[k]});
        states.add(running, spots, false);
      }
      const Running all = states.across_threads(states.across_lanes(running), 4);
      const Expr flat = tile.first_row + mine;
      const Expr of_batch = flat_batch(tile) * f_.rows.extent + flat;
      const std::vector<Guard> mask =
          unproved({{floormod(lane_, 4), Expr(0), Expr(1)}, {flat, Expr(0), f_.rows.extent}});
      for (std::size_t s = 0; s < all.size(); ++s)
        store_state(b_, partials_[s], of_batch * across_ + floordiv(tile.first_column, Expr(t_.bn)),
                    all[s][0], mask);
    }
  }

  void finish() override {
    const int warps = t_.threads() / 32;
    const Expr warp = floordiv(thread_variable(t_.threads()), 32);
    b_.grid_loop(ceildiv(rows_, Expr(warps)), [&](const Expr& item) {
      const Expr row = item * Expr(warps) + warp;
      Point p;
      p.at.resize(r_.axes.size());
      put_index(p, r_, f_.batch, floordiv(row, f_.rows.extent));
      put_index(p, r_, f_.rows, floormod(row, f_.rows.extent));
      const Guard exists{row, Expr(0), rows_};
      p.mask = unproved({exists});
      PassStates states = sums(1);
      const RunningVariables running(b_, states.start());
      const Expr turns = ceildiv(across_, Expr(32));
      b_.loop(Expr(0), turns, Expr(1), turns, Bind::Serial, [&](const Expr& turn) {
        const Expr at = turn * Expr(32) + lane_;
        const std::vector<Guard> mask = unproved({{at, Expr(0), across_}, exists});
        Running part;
        for (const std::vector<int>& buffers : partials_)
          part.push_back({load_state(b_, buffers, row * across_ + at, 1, mask)});
        const Running before = running.read();
        running.write(states.keep(mask, states.merge(before, part), before));
      });
      states.provide(p, states.across_threads(running.read(), 32));
      std::vector<int> outputs(r_.outputs.size());
      for (std::size_t o = 0; o < outputs.size(); ++o)
        outputs[o] = int(o);
      store_once(e_, outputs, p, lane_);
    });
  }

private:
  static constexpr std::size_t kTogether = 4; ///< fragments
  static constexpr Arithmetic kArithmetic{true, true};

  PassStates sums(int lanes) { return {e_, passes_, 0, kArithmetic, f_.places.extent, lanes, 1}; }

  Expr flat_batch(const GpuTile& tile) const {
    Expr flat(0);
    for (int a : f_.batch.axes)
      flat = flat * r_.axes[std::size_t(a)].extent + tile.batch.at[std::size_t(a)];
    return flat;
  }

  Emitter& e_;
  ProgramBuilder& b_;
  const Region& r_;
  const StreamForm& f_;
  const GpuTiles& t_;
  Passes passes_;
  Expr lane_, rows_, across_;
  std::vector<std::vector<int>> partials_; ///< by reduction, by part of its state
};

constexpr Knob kGpuRowProductsKnobs[] = {
    {"bm", 1, 1024}, {"bn", 1, 1024}, {"bk", 1, 1024}, {"stages", 1, 16}, {"wm", 1, 32}};

struct Found {
  Region region;
  StreamForm form;
  std::string reason;
};

Found find(const Region& region, const Target& target) {
  Found found{with_label_sums(region), {}, ""};
  FoundStream stream = find_stream(found.region);
  found.reason = stream.reason;
  found.form = std::move(stream.form);
  if (target.unit(FragmentLayout::SwizzledSharedRows) == nullptr)
    found.reason = "wgmma is of compute capability 9.0 alone";
  if (!found.reason.empty())
    return found;
  const StreamForm& f = found.form;
  if (f.products.size() != 1 || !f.sums.empty() || f.passes != 1)
    found.reason = "its rows need more than one pass over one product";
  else if (!f.rows.extent.is_constant() || !f.places.extent.is_constant() ||
           !f.batch.extent.is_constant() || f.rows.extent.value() < 1 ||
           f.places.extent.value() < 1 || f.batch.extent.value() < 1)
    found.reason = "rows and places are not known";
  return found;
}

class GpuRowProductsGenerator : public Generator {
public:
  std::string name() const override { return "gpu_row_products"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const Found found = find(region, target);
    if (!found.reason.empty())
      return {};
    std::vector<Schedule> space;
    struct Offer {
      int bm, bn, stages, groups;
    };
    for (const Offer& o : {Offer{128, 192, 5, 2},
                           {128, 128, 6, 2},
                           {128, 176, 5, 2},
                           {192, 128, 5, 3},
                           {64, 128, 8, 1},
                           {64, 64, 10, 1}}) {
      Schedule s;
      s.generator = name();
      s.mma = "wgmma";
      s.knobs = {{"bm", o.bm}, {"bn", o.bn}, {"bk", 64}, {"stages", o.stages}, {"wm", o.groups}};
      const std::int64_t down = (found.form.rows.extent.value() + o.bm - 1) / o.bm;
      s.order_group = std::min<std::int64_t>(16, down);
      if (lower(region, s, target).ok)
        space.push_back(std::move(s));
    }
    return space;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const Found found = find(region, target);
    if (!found.reason.empty())
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kGpuRowProductsKnobs, Takes::Matrix);
        !why.empty())
      return {false, {}, why};
    if (schedule.mma != "wgmma")
      return {false, {}, "no matrix instruction " + schedule.mma};
    const ContractionForm& product = found.form.products[0];
    const FoundTiles tiles = gpu_tiles_of(schedule, found.region, product, target);
    if (!tiles.reason.empty())
      return {false, {}, tiles.reason};
    if (tiles.tiles.bm / tiles.tiles.warps_m / 64 * tiles.tiles.bn > kMostSums)
      return {false, {}, "more sums than an even share of the registers"};
    Lowered lowered = lower_wgmma(found.region, product, tiles.tiles, schedule,
                                  [&](Emitter& e) -> std::unique_ptr<TileSums> {
                                    return std::make_unique<RowSums>(e, found.form, tiles.tiles);
                                  });
    return lowered.ok ? within_block(std::move(lowered.program), target) : lowered;
  }

private:
  /// Columns of a warp group's 64 rows.
  static constexpr int kMostSums = 192;
};

} // namespace

const Generator& gpu_row_products_generator() {
  static const GpuRowProductsGenerator generator;
  return generator;
}

} // namespace egret::kernel

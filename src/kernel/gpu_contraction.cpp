// The generator of contractions on a GPU: products of matrices in any layout, batched, with work on
// the operands before and on the result after. A block goes along the depth through a ring of tiles
// in shared memory; sums stay in registers, and the maps that follow are applied to them before
// they are stored.
#include "kernel/analysis.h"
#include "kernel/contraction_layouts.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/gpu_contraction_side.h"
#include "kernel/gpu_sums.h"
#include "kernel/gpu_wgmma.h"
#include "kernel/gpu_wgmma_side.h"
#include "kernel/knobs.h"
#include "support/checked.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

class GpuContraction {
public:
  GpuContraction(const Region& region, const ContractionForm& form, const GpuTiles& tiles,
                 const Schedule& schedule)
      : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
        left_(e_, f_, f_.left, f_.rows, "left", t_.bm, along_depth(f_.left), dtype_of(f_.left), t_),
        right_(e_, f_, f_.right, f_.columns, "right", t_.bn, along_depth(f_.right),
               dtype_of(f_.right), t_),
        sums_(make_sums(e_, f_, t_, left_, right_)) {}

  KernelProgram run() {
    const std::vector<int> result = result_axes(r_.stages[f_.stage]);
    Launch launch;
    launch.threads = t_.threads();
    launch.blocks_per_core = s_.blocks_per_core;
    launch.least_shared = s_.least_shared;
    launch.workers = Expr(1);
    if (is_empty(r_, result))
      return b_.finish(launch);
    parts_ = max(ceildiv(f_.depth.extent, t_.bk), Expr(1));
    const TileOrder order(f_, t_.bm, t_.bn, t_.group);
    const Expr tiles = order.count();
    launch.workers = tiles * Expr(t_.split);
    if (t_.split > 1) {
      partial_ = b_.workspace("partial", f_.accumulator,
                              launch.workers * Expr(std::int64_t(t_.bm) * t_.bn));
      const auto counters = tiles.constant();
      ensure(counters.has_value(), "region {}: a split depth needs a known number of tiles",
             r_.name);
      counter_ = b_.counter("arrived", *counters);
    }
    b_.grid_loop(launch.workers, [&](const Expr& number) {
      const Expr tile = floordiv(number, t_.split), share = floormod(number, t_.split);
      const GpuTile at = order.at(r_, tile);
      main_loop(at, share);
      sums_->join();
      if (t_.split > 1)
        combine(at, tile, share);
      else
        deliver(at);
      b_.barrier(); // the ring is still being read
    });
    return b_.finish(launch);
  }

private:
  /// Fragments are read along either axis; single elements along the panels.
  bool along_depth(const Side& side) const {
    return t_.unit != GpuUnit::Fma && side.order != Side::Order::Panel;
  }
  DType dtype_of(const Side& side) const {
    return t_.unit == GpuUnit::Fma ? f_.accumulator : factor_of(r_, f_, side).dtype;
  }

  void main_loop(const GpuTile& at, const Expr& share) {
    const Expr each = ceildiv(parts_, t_.split);
    const Expr begin = t_.split > 1 ? share * each : Expr(0);
    const Expr count = t_.split > 1 ? max(min(each, parts_ - begin), Expr(0)) : parts_;
    const Expr last = parts_ - Expr(1);
    const bool registers = !left_.is_async() || !right_.is_async();
    if (t_.unit == GpuUnit::Mma) { // elsewhere arithmetic takes long enough to hide loads
      if (!left_.is_async())
        left_.plan_ahead(at.batch, at.first_row);
      if (!right_.is_async())
        right_.plan_ahead(at.batch, at.first_column);
    }
    const bool early = left_.loads_ahead() || right_.loads_ahead();
    const int ahead = registers ? (early && t_.stages > 2 ? 2 : 1) : t_.stages - 1;
    sums_->clear();
    const auto copies = [&](const Expr& i, const Expr& stage) {
      const Expr depth = min(begin + i, last) * Expr(t_.bk);
      if (left_.is_async())
        left_.copy(at.batch, at.first_row, depth, stage);
      if (right_.is_async())
        right_.copy(at.batch, at.first_column, depth, stage);
    };
    for (int i = 0; i < ahead; ++i) {
      b_.when({{Expr(i), Expr(0), count}}, [&] { copies(Expr(i), Expr(i)); });
      b_.commit_copies();
    }
    const auto fetch = [&](const Expr& i) {
      const Expr depth = min(begin + i, last) * Expr(t_.bk);
      std::vector<ValueId> l, r;
      if (!left_.is_async())
        l = left_.fetch(at.batch, at.first_row, depth);
      if (!right_.is_async())
        r = right_.fetch(at.batch, at.first_column, depth);
      return std::pair{l, r};
    };
    const auto load_ahead = [&](const Expr& i) {
      const Expr depth = min(begin + i, last) * Expr(t_.bk);
      if (left_.loads_ahead())
        left_.load_ahead(at.batch, at.first_row, depth);
      if (right_.loads_ahead())
        right_.load_ahead(at.batch, at.first_column, depth);
    };
    if (registers) {
      const auto [l, r] = fetch(Expr(0));
      left_.put(l, Expr(0));
      right_.put(r, Expr(0));
      load_ahead(Expr(1));
    }
    b_.loop(Expr(0), count, Expr(1), each, Bind::Serial, [&](const Expr& i) {
      b_.wait_copies(ahead - 1);
      b_.barrier();
      const Expr next = i + Expr(ahead), stage = floormod(next, t_.stages);
      b_.when({{next, Expr(0), count}}, [&] { copies(next, stage); });
      b_.commit_copies();
      std::pair<std::vector<ValueId>, std::vector<ValueId>> values;
      if (registers) {
        values = fetch(i + Expr(1));
        load_ahead(i + Expr(2));
      }
      sums_->add(floormod(i, t_.stages));
      if (registers) {
        const Expr put = floormod(i + Expr(1), t_.stages);
        left_.put(values.first, put);
        right_.put(values.second, put);
      }
    });
    b_.wait_copies(0);
  }

  void deliver(const GpuTile& at) {
    b_.when(sums_->has_sums(), [&] { sums_->deliver(at); });
  }

  /// Shares of one tile's depth meet in memory: the block that comes last adds them up in order,
  /// each set of its warps every so many-th of them.
  void combine(const GpuTile& at, const Expr& tile, const Expr& share) {
    const Expr elements(std::int64_t(t_.bm) * t_.bn), split(t_.split);
    b_.when(sums_->has_sums(), [&] { sums_->save(partial_, (tile * split + share) * elements); });
    b_.last_arriver(counter_, tile, split, [&] {
      sums_->clear();
      sums_->restore({partial_, sums_->set(), split, split, t_.warps_k,
                      [&](const Expr& next) { return (tile * split + next) * elements; }});
      sums_->join();
      deliver(at);
    });
  }

  const Region& r_;
  const ContractionForm& f_;
  const GpuTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  SharedSide left_, right_;
  std::unique_ptr<RingSums> sums_;
  Expr parts_; ///< steps along the depth
  int partial_ = -1, counter_ = -1;
};

constexpr Knob kGpuContractionKnobs[] = {
    {"bm", 1, 1024}, {"bn", 1, 1024},         {"bk", 1, 1024},    {"stages", 1, 16},
    {"wm", 1, 32},   {"wn", 1, 32},           {"wk", 1, 32},      {"staged", 0, 1},
    {"swap", 0, 1},  {"streamk", 0, 1 << 12}, {"pingpong", 1, 4}, {"split_parts", 0, 1}};

class GpuContractionGenerator : public Generator {
public:
  std::string name() const override { return "gpu_contraction"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    const FoundContraction found = find_contraction(region, false, true);
    return found.ok ? gpu_contraction_space(region, found.form, target) : std::vector<Schedule>{};
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    const FoundContraction found = find_contraction(region, false, true);
    if (!found.ok)
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kGpuContractionKnobs, Takes::Matrix);
        !why.empty())
      return {false, {}, why};
    const FoundTiles tiles = gpu_tiles_of(schedule, region, found.form, target);
    if (!tiles.reason.empty())
      return {false, {}, tiles.reason};
    if (tiles.tiles.unit == GpuUnit::Wgmma) {
      ContractionForm form = found.form;
      if (schedule.knob("swap", 0) != 0) {
        std::swap(form.rows, form.columns);
        std::swap(form.left, form.right);
      }
      return lower_wgmma(region, form, tiles.tiles, schedule);
    }
    ContractionForm form = found.form;
    form.columns.run = slice_run(tiles.tiles.unit);
    return {true, GpuContraction(region, form, tiles.tiles, schedule).run(), ""};
  }

  /// Matrix units take sides of 16 bits that go along the depth without more ado; other sides go
  /// to shared memory in wide pieces when they go along rows or columns.
  std::vector<LayoutWish> layouts(const Region& region, const Target& target) const override {
    const FoundContraction found = find_contraction(region);
    if (!found.ok)
      return {};
    const ContractionForm& form = found.form;
    std::vector<LayoutWish> wishes = windows_along_depth(region, form, target);
    if (wishes.empty())
      wishes = aligned_rows(region, form, target);
    for (const bool right : {false, true}) {
      const Side& side = right ? form.right : form.left;
      const AxisGroup& group = right ? form.columns : form.rows;
      const auto memory = memory_of(region, form, side);
      if (!memory || !contains(*memory, group.axes.back()))
        continue;
      const bool deep = size_of(factor_of(region, form, side).dtype) == 2;
      if (side.order == (deep ? Side::Order::Depth : Side::Order::Panel))
        continue;
      wishes.push_back({operand_of(region, form, side),
                        deep ? along_depth(region, form, group, *memory)
                             : in_panels(region, form, group, *memory, 0, false),
                        deep    ? "order along the depth"
                        : right ? "order along the columns"
                                : "order along the rows"});
    }
    return wishes;
  }

private:
  // How many times as long as the matrix units' cycles it takes by registers, by copies, and, an
  // estimate, by copies for queued products: bench/results/2026-11-23-convolutions.md.
  static constexpr double kByRegisters = 4.5, kByCopies = 2.5, kQueued = 0.8;

  /// Cycles of the matrix units that multiply fragments, all of them at work, in seconds; of tiles
  /// of at least `tile` rows and columns.
  static double ideal_seconds(const ContractionForm& form, const MatrixUnit& unit,
                              const Target& target, std::int64_t tile = 1) {
    constexpr double kClock = 1.5e9, kSchedulers = 4;
    double products = static_cast<double>(form.batch.extent.lower()) *
                      static_cast<double>(form.depth.extent.lower()) / (16 * 8 * 16);
    for (const AxisGroup* group : {&form.rows, &form.columns})
      products *= static_cast<double>(ceil_quotient(group->extent.lower(), tile) * tile);
    return products * unit.cycles / (kSchedulers * target.workers * kClock);
  }

  /// Sides of 16 bits whose rows are no multiples of 16 bytes come element by element through
  /// registers. With room at the ends of rows they come in whole vectors.
  static std::vector<LayoutWish> aligned_rows(const Region& region, const ContractionForm& form,
                                              const Target& target) {
    const MatrixUnit* unit = target.unit(FragmentLayout::SubgroupFragments);
    if (!unit)
      return {};
    const bool queued = target.unit(FragmentLayout::SwizzledSharedRows) != nullptr;
    constexpr std::int64_t kTile = 64;
    const double saved =
        (kByRegisters - (queued ? kQueued : kByCopies)) * ideal_seconds(form, *unit, target, kTile);
    std::vector<LayoutWish> wishes;
    for (const Side* side : {&form.left, &form.right}) {
      const auto memory = memory_of(region, form, *side);
      if (!memory || size_of(factor_of(region, form, *side).dtype) != 2)
        return {};
      if (auto layout = with_aligned_rows(region, form, *side, *memory))
        wishes.push_back(
            {operand_of(region, form, *side), *std::move(layout), "rows of whole vectors", saved});
    }
    return wishes;
  }

  /// Sides of 16 bits that are windows of an operand, or whose pieces are not aligned, come element
  /// by element through registers. With an axis innermost that all of the operand's windows have in
  /// common, as the channels, they come in pieces of 16 bytes: along the depth, or for queued
  /// products along any axis of their own.
  static std::vector<LayoutWish>
  windows_along_depth(const Region& region, const ContractionForm& form, const Target& target) {
    // What a result that lies apart from its neighbours takes of the second cache, in seconds.
    constexpr double kSector = 32 / 4e12;
    const MatrixUnit* unit = target.unit(FragmentLayout::SubgroupFragments);
    if (!unit)
      return {};
    const bool queued = target.unit(FragmentLayout::SwizzledSharedRows) != nullptr;
    const int axis = axis_to_copy_along(region, form);
    const auto own = queued ? axes_to_copy_sides_along(region, form) : std::nullopt;
    if (axis < 0 && !own)
      return {};
    const double ideal = ideal_seconds(form, *unit, target);
    // Results follow the sides' own axes: along others than their own they lie apart.
    const auto apart = [&](int along) {
      double seconds = 0;
      for (const Output& out : region.outputs)
        if (along >= 0 && !contains(form.depth.axes, along) &&
            stride_of(region, out, along) != std::optional<std::int64_t>(1))
          seconds += kSector * static_cast<double>(usual_size(
                                   points_of(region, result_axes(region.stages[out.stage]))));
      return seconds;
    };
    std::vector<LayoutWish> wishes;
    const auto wish = [&](bool right, int along, const char* what, double seconds) {
      const Side& side = right ? form.right : form.left;
      auto layout = along < 0 ? std::nullopt : innermost(region, form, side, along);
      if (layout && std::none_of(wishes.begin(), wishes.end(), [&](const LayoutWish& w) {
            return w.operand == operand_of(region, form, side) && w.layout == *layout;
          }))
        wishes.push_back({operand_of(region, form, side), std::move(*layout), what, seconds});
    };
    for (const Side* side : {&form.left, &form.right})
      if (size_of(factor_of(region, form, *side).dtype) != 2)
        return {};
    for (const bool right : {false, true})
      if (!own)
        wish(right, axis, "order along the depth of windows", (kByRegisters - kByCopies) * ideal);
    for (const bool right : {false, true})
      if (own)
        wish(right, (*own)[right], "order along an axis of windows",
             (kByRegisters - kQueued) * ideal - apart((*own)[0]) - apart((*own)[1]));
    return wishes;
  }
};

} // namespace

const Generator& gpu_contraction_generator() {
  static const GpuContractionGenerator generator;
  return generator;
}

} // namespace egret::kernel

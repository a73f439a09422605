#include "kernel/gpu_wgmma.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_sums.h"
#include "support/fail.h"

#include <algorithm>
#include <optional>
#include <span>

namespace egret::kernel {

namespace {

/// Elements of two bytes in a row of the swizzled order.
constexpr int kRow = 64;
/// Products of this many rows, and of this many steps along the depth, are one instruction.
constexpr int kRows = 64, kSteps = 16;

/// One side as the copy engine sees it: affine in its axes, neighbours along the depth or along the
/// panels. Rows, columns or depth may be several axes when tiles never reach over an edge of the
/// innermost one.
struct TensorView {
  std::string reason; ///< why there is none
  TensorMap map;      ///< without its buffer
  int operand = -1;
  bool transposed = false;
  /// A coordinate: the place along a region axis, by `divisor`, and of that the rest by `modulus`
  /// (0: all of it).
  struct Coordinate {
    int axis = -1;
    std::int64_t divisor = 1, modulus = 0;
    Expr at(const Point& p) const {
      const Expr whole = floordiv(p.at[std::size_t(axis)], Expr(divisor));
      return modulus > 0 ? floormod(whole, Expr(modulus)) : whole;
    }
  };
  Coordinate panel, depth;        ///< the first two
  std::vector<Coordinate> others; ///< behind them
};

/// Terms c * (variable // d) of a sum, as pairs of d and c.
std::vector<std::pair<std::int64_t, std::int64_t>> quotients_of(const Expr& e,
                                                                const Expr& variable) {
  std::vector<std::pair<std::int64_t, std::int64_t>> found;
  const auto term = [&](const Expr& t, std::int64_t times) {
    const ExprNode& n = t.node();
    if (n.kind == ExprKind::FloorDiv && n.operands[0] == variable && n.operands[1].is_constant())
      found.emplace_back(n.operands[1].value(), times);
  };
  const ExprNode& n = e.node();
  if (n.kind != ExprKind::Sum)
    term(e, 1);
  else
    for (std::size_t i = 0; i < n.operands.size(); ++i)
      term(n.operands[i], n.coefficients[i]);
  return found;
}

/// Whether pieces of `tile` elements lie within the innermost axis of a group.
bool holds_tiles(const Region& r, const AxisGroup& group, int tile) {
  const Expr& inner = r.axes[std::size_t(group.axes.back())].extent;
  return group.axes.size() == 1 || (inner.is_constant() && inner.value() % tile == 0);
}

TensorView view_of(const Region& r, const ContractionForm& f, const Side& side,
                   const AxisGroup& group, int panel, int depth) {
  TensorView v;
  const Factor factor = factor_of(r, f, side);
  const Stage& stage = r.stages[f.stage];
  const auto because = [&](std::string why) {
    v.reason = std::move(why);
    return v;
  };
  if (!factor.is_load || size_of(factor.dtype) != 2)
    return because("a factor is no array of two-byte elements");
  if (group.axes.empty() || f.depth.axes.empty())
    return because("it has no rows, columns or depth");
  const Load& load = stage.loads[stage.body[factor.value].load];
  v.operand = load.number;
  Expr rest = offset_of(r, load);
  const auto stride_along = [&](int axis) {
    for (std::size_t i = 0; i < stage.axes.size(); ++i)
      if (stage.axes[i] == axis) {
        const Expr variable = Expr::axis(int(i), r.axes[axis].extent);
        if (const auto c = coefficient_of(rest, variable)) {
          rest = rest - *c * variable;
          return *c;
        }
      }
    return Expr(0);
  };
  const int p = group.axes.back(), d = f.depth.axes.back();
  v.panel.axis = p;
  v.depth.axis = d;
  // An axis that goes on elsewhere after some elements (heads side by side) is two of the tensor's.
  struct Jump {
    std::int64_t after = 0; ///< elements; 0: the axis is in one piece
    Expr stride;            ///< from one piece to the next
  };
  const auto take_jump = [&](int axis) {
    Jump jump;
    for (std::size_t i = 0; i < stage.axes.size(); ++i) {
      if (stage.axes[i] != axis)
        continue;
      const Expr& extent = r.axes[std::size_t(axis)].extent;
      const Expr variable = Expr::axis(int(i), extent);
      for (const auto& [after, times] : quotients_of(rest, variable))
        if (jump.after == 0 && extent.is_constant() && extent.value() % after == 0) {
          jump.after = after;
          rest = rest - Expr(times) * floordiv(variable, Expr(after));
          jump.stride = Expr(times); // and what the axis itself advances, see below
        }
    }
    return jump;
  };
  Jump panel_jump = take_jump(p), depth_jump = take_jump(d);
  const Expr along_panel = stride_along(p), along_depth = stride_along(d);
  panel_jump.stride = panel_jump.stride + Expr(panel_jump.after) * along_panel;
  depth_jump.stride = depth_jump.stride + Expr(depth_jump.after) * along_depth;
  v.panel.modulus = panel_jump.after;
  v.depth.modulus = depth_jump.after;
  v.transposed = !(along_depth == Expr(1));
  if (v.transposed && !(along_panel == Expr(1)))
    return because("a factor has no neighbours along depth, rows or columns");
  if (v.transposed && panel % kRow != 0)
    return because("a tile is no multiple of 64 along a transposed factor");
  const auto extent_of = [&](int axis, const Jump& jump) {
    return jump.after > 0 ? Expr(jump.after) : r.axes[std::size_t(axis)].extent;
  };
  v.map.extents = {extent_of(p, panel_jump), extent_of(d, depth_jump)};
  v.map.strides = {Expr(1), along_depth};
  v.map.box = {kRow, depth};
  if (!v.transposed) {
    std::swap(v.map.extents[0], v.map.extents[1]);
    v.map.strides[1] = along_panel;
    v.map.box = {kRow, panel};
  }
  const int panel_tile = v.transposed ? kRow : panel, depth_tile = v.transposed ? depth : kRow;
  if (!holds_tiles(r, group, panel_tile) || !holds_tiles(r, f.depth, depth_tile) ||
      panel_jump.after % panel_tile != 0 || depth_jump.after % depth_tile != 0)
    return because("tiles would reach over an edge of one of several axes");
  const auto add_axes = [&](std::span<const int> axes) {
    for (const int axis : axes)
      if (const Expr stride = stride_along(axis); !(stride == Expr(0))) {
        v.others.push_back({axis});
        v.map.extents.push_back(r.axes[axis].extent);
        v.map.strides.push_back(stride);
        v.map.box.push_back(1);
      }
  };
  const auto add_jump = [&](int axis, const Jump& jump) {
    if (jump.after == 0)
      return;
    v.others.push_back({axis, jump.after});
    v.map.extents.push_back(floordiv(r.axes[std::size_t(axis)].extent, Expr(jump.after)));
    v.map.strides.push_back(jump.stride);
    v.map.box.push_back(1);
  };
  add_jump(p, panel_jump);
  add_jump(d, depth_jump);
  add_axes(f.batch.axes);
  add_axes(std::span(group.axes).first(group.axes.size() - 1));
  add_axes(std::span(f.depth.axes).first(f.depth.axes.size() - 1));
  if (v.map.extents.size() > 5)
    return because("the copy engine knows five axes");
  for (const Expr& e : variables_of(rest))
    if (e.is_axis())
      return because("a factor's elements are not evenly spaced");
  v.map.offset = rest;
  const auto aligned = [](const Expr& e) { return e.divisor() % 8 == 0; };
  if (r.operands[load.number].alignment % 16 != 0 || !aligned(rest) ||
      !std::all_of(v.map.strides.begin() + 1, v.map.strides.end(), aligned))
    return because("a factor's rows do not begin at multiples of 16 bytes");
  for (const int side_of_box : v.map.box)
    if (side_of_box > 256)
      return because("a tile is longer than the copy engine's 256");
  return v;
}

/// A ring of tiles of one side in the order that products read.
class TensorSide {
public:
  TensorSide(Emitter& emitter, const ContractionForm& form, const AxisGroup& group,
             const TensorView& view, const std::string& name, int panel, const GpuTiles& tiles)
      : r_(emitter.region()), b_(emitter.builder()), form_(form), group_of_panels_(group),
        view_(view), panel_(panel), t_(tiles) {
    buffer_ = b_.shared(name, emitter.region().operands[view.operand].dtype,
                        std::int64_t(t_.stages) * panel * t_.bk, 1024);
    TensorMap map = view.map;
    map.buffer = emitter.operand_buffer(view.operand);
    map_ = b_.tensor_map(std::move(map));
  }

  int buffer() const { return buffer_; }
  bool transposed() const { return view_.transposed; }
  int group() const { return t_.bk * kRow; } ///< elements between groups of 64, when transposed
  int bytes() const { return panel_ * t_.bk * 2; }
  Expr at(const Expr& stage, const Expr& p, const Expr& k) const {
    const Expr piece = stage * Expr(std::int64_t(panel_) * t_.bk);
    return view_.transposed ? piece + p * Expr(t_.bk) + k * Expr(kRow) : piece + p * Expr(kRow) + k;
  }

  void copy(const GpuTile& tile, const Expr& first, const Expr& depth, const Expr& stage,
            int signals) {
    const int boxes = view_.transposed ? panel_ / kRow : 1;
    for (int i = 0; i < boxes; ++i) {
      Point p = tile.batch;
      put_index(p, r_, group_of_panels_, first + Expr(i * kRow));
      put_index(p, r_, form_.depth, depth);
      std::vector<Expr> place{view_.depth.at(p), view_.panel.at(p)};
      if (view_.transposed)
        std::swap(place[0], place[1]);
      for (const TensorView::Coordinate& c : view_.others)
        place.push_back(c.at(p));
      b_.tensor_copy(map_, std::move(place), buffer_, at(stage, Expr(i * kRow), Expr(0)), signals,
                     stage);
    }
  }

private:
  const Region& r_;
  ProgramBuilder& b_;
  const ContractionForm& form_;
  const AxisGroup& group_of_panels_;
  const TensorView& view_;
  int panel_;
  const GpuTiles& t_;
  int buffer_ = -1, map_ = -1;
};

/// Every group of four warps has rows of its own, in pieces of 64.
class GroupSums : public GpuSums {
public:
  /// `sink`: takes the sums instead of memory.
  GroupSums(Emitter& emitter, const ContractionForm& form, const GpuTiles& tiles, TileSums* sink)
      : GpuSums(emitter, form, tiles), sink_(sink), pieces_(tiles.bm / tiles.warps_m / kRows),
        across_(tiles.bn / 8),
        row_((floordiv(thread_, 128) - Expr(tiles.producers)) * Expr(pieces_ * kRows)) {
    make_variables(pieces_ * across_, 4);
    if (sink_ == nullptr)
      fragments_.emplace(emitter, form, tiles);
  }

  /// Products of one piece of the ring; the first of a tile, where `part` is 0, begin anew.
  void add(const TensorSide& left, const TensorSide& right, const Expr& stage, const Expr& part,
           DType element) {
    for (int k = 0; k < t_.bk; k += kSteps)
      for (int i = 0; i < pieces_; ++i) {
        Stmt s;
        s.kind = StmtKind::MultiplyAsync;
        s.variables.assign(variables_.begin() + i * across_,
                           variables_.begin() + (i + 1) * across_);
        s.inst.element = element;
        s.inst.buffer = left.buffer();
        s.inst.expr = left.at(stage, row_ + Expr(i * kRows), Expr(k));
        s.inst.transposed = left.transposed();
        s.target = left.group();
        s.inst.source = right.buffer();
        s.inst.source_expr = right.at(stage, Expr(0), Expr(k));
        s.inst.source_transposed = right.transposed();
        s.number = right.group();
        if (k == 0)
          s.inst.mask = {{part, Expr(1), Expr(INT64_MAX)}};
        b_.effect(std::move(s));
      }
  }

  void deliver(const GpuTile& tile) override {
    const Expr warp = floormod(floordiv(thread_, 32), 4);
    for (int i = 0; i < pieces_; ++i) {
      const Expr row = row_ + Expr(i * kRows) + warp * Expr(16);
      const auto part =
          std::span(variables_).subspan(std::size_t(i * across_), std::size_t(across_));
      if (sink_ != nullptr)
        sink_->take(tile, row, part);
      else
        fragments_->deliver(tile, row, Expr(0), part);
    }
  }

private:
  TileSums* sink_;
  std::optional<Fragments> fragments_;
  int pieces_, across_;
  Expr row_; ///< first row of the group
};

class WgmmaContraction {
public:
  WgmmaContraction(const Region& region, const ContractionForm& form, const GpuTiles& tiles,
                   const Schedule& schedule, const TensorView& left, const TensorView& right,
                   const MakeTileSums& make)
      : r_(region), f_(form), t_(tiles), s_(schedule), b_(region.name), e_(b_, region),
        left_(e_, f_, f_.rows, left, "left", t_.bm, t_),
        right_(e_, f_, f_.columns, right, "right", t_.bn, t_), sink_(make ? make(e_) : nullptr),
        sums_(e_, f_, t_, sink_.get()), thread_(thread_variable(t_.threads())),
        stage_(b_.variable({DType::I32, 1})), parity_(b_.variable({DType::I32, 1})) {
    full_ = b_.shared("full", DType::U64, t_.stages);
    empty_ = b_.shared("empty", DType::U64, t_.stages);
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = t_.threads();
    launch.resident = true;
    launch.blocks_per_core = s_.blocks_per_core > 0 ? s_.blocks_per_core : 1;
    launch.least_shared = s_.least_shared;
    const TileOrder order(f_, t_.bm, t_.bn, t_.group);
    launch.workers = max(order.count(), Expr(1));
    parts_ = ceildiv(f_.depth.extent, t_.bk);
    b_.when({{thread_, Expr(0), Expr(1)}}, [&] {
      for (int i = 0; i < t_.stages; ++i) {
        signal(StmtKind::InitSignal, full_, Expr(i), 1);
        signal(StmtKind::InitSignal, empty_, Expr(i), t_.warps_m);
      }
    });
    b_.barrier();
    const Expr group = floordiv(thread_, 128), producers(t_.producers);
    b_.either(
        {{group, Expr(0), producers}}, [&] { produce(order); }, [&] { consume(order); });
    if (sink_) {
      b_.grid_barrier(b_.counter("met", 2), Expr(0));
      sink_->finish();
    }
    return b_.finish(launch);
  }

private:
  void signal(StmtKind kind, int buffer, const Expr& place, int number) {
    Stmt s;
    s.kind = kind;
    s.number = number;
    s.inst.buffer = buffer;
    s.inst.expr = place;
    b_.effect(std::move(s));
  }
  void await(int buffer, const Expr& place, ValueId parity) {
    Stmt s;
    s.kind = StmtKind::Await;
    s.inst.buffer = buffer;
    s.inst.expr = place;
    s.args = {parity};
    b_.effect(std::move(s));
  }
  void effect(StmtKind kind, int number = 0, int target = -1) {
    Stmt s;
    s.kind = kind;
    s.number = number;
    s.target = target;
    b_.effect(std::move(s));
  }

  ValueId i32(std::int64_t value) { return b_.constant(Scalar::of(DType::I32, double(value))); }
  /// The next piece of the ring; after the last one begins its next phase.
  void advance() {
    const ValueId next = b_.apply(Op::Add, DType::I32, {b_.read(stage_), i32(1)});
    const ValueId again = b_.apply(Op::Eq, DType::Bool, {next, i32(t_.stages)});
    b_.set(stage_, b_.apply(Op::Select, DType::I32, {again, i32(0), next}));
    const ValueId parity = b_.read(parity_);
    b_.set(parity_, b_.apply(Op::Select, DType::I32,
                             {again, b_.apply(Op::Xor, DType::I32, {parity, i32(1)}), parity}));
  }

  /// Accumulators of many columns need more registers than an even share. What comes behind the
  /// tiles needs an even one.
  bool moves_registers() const {
    return !sink_ && t_.warps_m >= 2 && t_.bm / t_.warps_m / kRows * t_.bn >= 192;
  }

  void produce(const TileOrder& order) {
    if (moves_registers())
      effect(StmtKind::SetRegisters, 40, 0);
    b_.when({{thread_, Expr(0), Expr(1)}}, [&] {
      b_.set(parity_, i32(1)); // the ring is empty at the start
      b_.grid_loop(order.count(), [&](const Expr& number) {
        const GpuTile tile = order.at(r_, number);
        b_.loop(Expr(0), parts_, Expr(1), parts_, Bind::Serial, [&](const Expr& part) {
          const Expr stage = value_symbol(b_.read(stage_));
          await(empty_, stage, b_.read(parity_));
          signal(StmtKind::Arrive, full_, stage, left_.bytes() + right_.bytes());
          const Expr depth = part * Expr(t_.bk);
          left_.copy(tile, tile.first_row, depth, stage, full_);
          right_.copy(tile, tile.first_column, depth, stage, full_);
          advance();
        });
      });
    });
  }

  void consume(const TileOrder& order) {
    if (moves_registers())
      effect(StmtKind::SetRegisters, t_.warps_m == 2 ? 232 : 160, 1);
    const DType element = factor_of(r_, f_, f_.left).dtype;
    const VarId previous = b_.variable({DType::I32, 1});
    const Expr in_group = floormod(thread_, 128);
    const auto release = [&] {
      const Expr stage = value_symbol(b_.read(previous));
      b_.when({{in_group, Expr(0), Expr(1)}}, [&] { signal(StmtKind::Arrive, empty_, stage, 0); });
    };
    b_.grid_loop(order.count(), [&](const Expr& number) {
      const GpuTile tile = order.at(r_, number);
      b_.loop(Expr(0), parts_, Expr(1), parts_, Bind::Serial, [&](const Expr& part) {
        const ValueId at = b_.read(stage_);
        await(full_, value_symbol(at), b_.read(parity_));
        effect(StmtKind::FenceProducts);
        sums_.add(left_, right_, value_symbol(at), part, element);
        effect(StmtKind::CommitProducts);
        // The products before these are done: their piece is free.
        b_.when({{part, Expr(1), parts_}}, [&] {
          effect(StmtKind::WaitProducts, 1);
          release();
        });
        b_.set(previous, at);
        advance();
      });
      effect(StmtKind::WaitProducts, 0);
      release();
      sums_.deliver(tile);
    });
  }

  const Region& r_;
  const ContractionForm& f_;
  const GpuTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  TensorSide left_, right_;
  std::unique_ptr<TileSums> sink_;
  GroupSums sums_;
  Expr thread_, parts_;
  VarId stage_, parity_; ///< of the ring: its next piece, and the parity of the phase to wait for
  int full_ = -1, empty_ = -1;
};

} // namespace

std::string tensor_map_reason(const Region& region, const ContractionForm& form, const Side& side,
                              const AxisGroup& group, int panel) {
  return view_of(region, form, side, group, panel, kRow).reason;
}

Lowered lower_wgmma(const Region& region, const ContractionForm& form, const GpuTiles& tiles,
                    const Schedule& schedule, const MakeTileSums& sums) {
  const TensorView left = view_of(region, form, form.left, form.rows, tiles.bm, tiles.bk),
                   right = view_of(region, form, form.right, form.columns, tiles.bn, tiles.bk);
  for (const TensorView* v : {&left, &right})
    if (!v->reason.empty())
      return {false, {}, v->reason};
  if (is_empty(region, result_axes(region.stages[form.stage])) || form.depth.extent.lower() < 1)
    return {false, {}, "a depth that may be empty"};
  return {true, WgmmaContraction(region, form, tiles, schedule, left, right, sums).run(), ""};
}

} // namespace egret::kernel

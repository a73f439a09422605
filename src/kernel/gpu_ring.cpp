// Products of a few rows with a large matrix whose rows lie along the depth, on a GPU with bulk
// copies: each multiprocessor holds one block, one of whose warps keeps a ring in shared memory
// full of rows of the matrix, while the others share out the depth and multiply. The rows of the
// left side stay in registers. The ring is filled while the launch before is still running, where
// the matrix is known to be there (Buffer::settled): programmatic dependent launch (CUDA
// programming guide).
#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/families.h"
#include "kernel/gpu_few_rows.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_sums.h"
#include "kernel/knobs.h"
#include "support/checked.h"

#include <algorithm>
#include <set>

namespace egret::kernel {

namespace {

constexpr int kMostHeld = 64;       ///< elements of the left side in a thread's registers
constexpr int kMostProducts = 1024; ///< of a thread for a piece of the ring
constexpr std::int64_t kMostPieceRows = 16;
constexpr std::int64_t kCopyUnit = 16; ///< bytes: bulk copies are multiples of it, aligned to it

/// An array that a matrix is made of: its rows come through the ring.
struct Staged {
  int product = 0; ///< whose matrix
  int load = 0;    ///< of its stage
  int operand = 0;
  std::int64_t elements = 0; ///< of a row, neighbours in memory
  std::int64_t element_size = 0;
  std::int64_t bytes() const { return elements * element_size; }
};

/// Elements of a row of the load that are neighbours along the depth, in whole units of a bulk
/// copy; 0: they are not.
std::int64_t row_elements(const Region& r, const ContractionForm& f, const Load& load) {
  const Stage& stage = r.stages[std::size_t(f.stage)];
  if (load.source != Source::Operand || !load.indirect.empty())
    return 0;
  const Operand& operand = r.operands[std::size_t(load.number)];
  const IndexMap map = compose(load.map, operand.layout);
  if (operand.role != Role::Tensor || !map.holes.empty() || operand.alignment % kCopyUnit != 0)
    return 0;
  const Expr& offset = map.coords[0];
  if (!is_sum_over(offset, stage, f.depth.axes))
    return 0;
  const Expr first = without_axes(offset, stage, f.depth.axes), along = offset - first;
  const auto size = std::int64_t(size_of(operand.dtype));
  const std::int64_t elements = along.upper() + 1;
  if (along.lower() != 0 || elements > f.depth.extent.upper() ||
      first.divisor() * size % kCopyUnit != 0 || elements * size % kCopyUnit != 0)
    return 0;
  return elements;
}

/// Products that have all axes and their rows in common, and the arrays with rows along the depth
/// that their matrices are made of; or why there are none.
struct FoundRing {
  std::vector<ContractionForm> products;
  std::vector<Staged> arrays;
  std::string reason;
  std::int64_t row_bytes() const { ///< of all matrices
    std::int64_t all = 0;
    for (const Staged& s : arrays)
      all += s.bytes();
    return all;
  }
};

/// One reduction of the region, as if it were the only one.
FoundContraction find_alone(const Region& region, int stage) {
  const auto place = [&](const Output& o) {
    return result_axes(region.stages[std::size_t(o.stage)]) ==
           result_axes(region.stages[std::size_t(stage)]);
  };
  const auto like = std::find_if(region.outputs.begin(), region.outputs.end(), place);
  if (like == region.outputs.end())
    return {false, {}, "no output has the axes of a product"};
  Region alone = region;
  alone.stages = {region.stages[std::size_t(stage)]};
  alone.outputs = {*like};
  alone.outputs[0].stage = alone.outputs[0].component = 0;
  FoundContraction found = find_few_rows(alone);
  found.form.stage = stage;
  return found;
}

bool same_axes(const AxisGroup& a, const AxisGroup& b) {
  return a.axes == b.axes && a.slices == 1 && b.slices == 1;
}

std::string find_products(const Region& region, std::vector<ContractionForm>& products) {
  std::vector<int> reducing;
  for (std::size_t s = 0; s < region.stages.size(); ++s)
    if (region.stages[s].kind != StageKind::Map)
      reducing.push_back(int(s));
  const bool one = reducing.size() == 1;
  for (const int stage : reducing) {
    FoundContraction found = one ? find_few_rows(region) : find_alone(region, stage);
    if (!found.ok)
      return found.reason;
    const ContractionForm& f = products.empty() ? found.form : products.front();
    const ContractionForm& other = found.form;
    if (!one && !(same_axes(f.rows, other.rows) && same_axes(f.columns, other.columns) &&
                  same_axes(f.depth, other.depth) && same_axes(f.batch, other.batch) &&
                  f.accumulator == other.accumulator))
      return "its products differ in their axes";
    products.push_back(std::move(found.form));
  }
  if (products.empty())
    return "it has no product";
  if (one)
    return "";
  const std::vector<int> parallel = result_axes(region.stages[std::size_t(reducing[0])]);
  for (const Stage& stage : region.stages)
    if (stage.kind == StageKind::Map && stage.axes != parallel)
      return "a map runs over other axes than the results";
  for (const Output& out : region.outputs)
    if (out.combine != Combine::Store ||
        result_axes(region.stages[std::size_t(out.stage)]) != parallel)
      return "an output is no map of the results";
  return "";
}

FoundRing find_ring(const Region& r) {
  FoundRing found;
  found.reason = find_products(r, found.products);
  for (std::size_t i = 0; i < found.products.size() && found.reason.empty(); ++i) {
    const ContractionForm& f = found.products[i];
    if (f.right.order == Side::Order::Panel || f.rows.extent.value() > kMostFewRows ||
        !f.depth.extent.is_constant() || f.depth.axes.empty() || !f.columns.extent.is_constant() ||
        !f.batch.extent.is_constant()) {
      found.reason = "rows of a matrix do not lie along a known depth";
      break;
    }
    const Stage& stage = r.stages[std::size_t(f.stage)];
    const std::size_t before = found.arrays.size();
    for (const int number : loads_of(stage, factor_of(r, f, f.right).value)) {
      const Load& load = stage.loads[std::size_t(number)];
      if (const std::int64_t elements = row_elements(r, f, load); elements > 1)
        found.arrays.push_back({int(i), number, load.number, elements,
                                std::int64_t(size_of(r.operands[std::size_t(load.number)].dtype))});
    }
    if (found.arrays.size() == before)
      found.reason = "no array has rows that bulk copies can bring";
  }
  return found;
}

/// Elements of the left side that are held for one column: where products have it in common, once.
std::int64_t left_sides(const Region& r, const FoundRing& found) {
  std::set<std::set<int>> operands;
  for (const ContractionForm& f : found.products) {
    const Stage& stage = r.stages[std::size_t(f.stage)];
    std::set<int> of;
    for (const int number : loads_of(stage, f.left.value))
      of.insert(stage.loads[std::size_t(number)].number);
    operands.insert(of);
  }
  return std::int64_t(operands.size());
}

struct RingTiles {
  int subgroup = 1;
  int lanes = 1;   ///< neighbours along the depth that a thread reads at once
  int warps = 8;   ///< that multiply; each has a share of the depth
  int rows = 1;    ///< of each matrix in a piece of the ring
  int stages = 2;  ///< pieces of the ring
  int flight = 2;  ///< of which so many are being copied at the most
  int columns = 1; ///< of a block's tile: rows of each matrix
  int consumers() const { return warps * subgroup; }
  int threads() const { return consumers() + subgroup; }
  int step() const { return consumers() * lanes; } ///< along the depth
};

constexpr Knob kGpuRingKnobs[] = {{"warps", 1, 16},
                                  {"rows", 1, 32},
                                  {"stages", 2, 32},
                                  {"flight", 0, 32},
                                  {"columns", 1, 1 << 20}};

/// Neighbours along the depth that a thread reads at once.
int ring_lanes(const Region& r, const ContractionForm& f) {
  return power_of_two_upto(
      std::min<std::int64_t>(kWidestAccess / std::int64_t(size_of(matrix_type(r, f))), 8));
}

RingTiles ring_tiles_of(const Schedule& s, const Region& r, const ContractionForm& f,
                        const Target& target) {
  RingTiles t;
  t.subgroup = std::max(target.subgroup, 1);
  t.lanes = ring_lanes(r, f);
  t.warps = int(s.knob("warps", 8));
  t.rows = int(s.knob("rows", 1));
  t.stages = int(s.knob("stages", 2));
  t.flight = int(s.knob("flight", 0));
  if (t.flight == 0)
    t.flight = t.stages;
  t.columns = int(s.knob("columns", 1));
  return t;
}

class GpuRing {
public:
  GpuRing(const Region& region, const FoundRing& found, const RingTiles& tiles,
          const Schedule& schedule)
      : r_(region), products_(found.products), f_(found.products.front()), t_(tiles), s_(schedule),
        b_(region.name), e_(b_, region), product_(e_, found.products, true),
        left_rows_(int(f_.rows.extent.value())), row_bytes_(found.row_bytes()),
        thread_(thread_variable(tiles.threads())), lane_(floormod(thread_, tiles.subgroup)),
        stage_(b_.variable({DType::I32, 1})), parity_(b_.variable({DType::I32, 1})) {
    if (t_.flight < t_.stages)
      for (VarId* v : {&begun_, &copied_, &copied_parity_})
        *v = b_.variable({DType::I32, 1});
    for (const Staged& s : found.arrays) {
      rings_.push_back({s, b_.shared("ring", r_.operands[std::size_t(s.operand)].dtype,
                                     std::int64_t(t_.stages) * t_.rows * s.elements, 128)});
    }
    full_ = b_.shared("full", DType::U64, t_.stages);
    empty_ = b_.shared("empty", DType::U64, t_.stages);
    met_ = b_.shared("met", DType::U64, 1);
    part_ =
        b_.shared("part", f_.accumulator, t_.warps * results() * std::int64_t(products_.size()));
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = t_.threads();
    launch.resident = true;
    launch.blocks_per_core = 1;
    launch.least_shared = s_.least_shared;
    launch.workers = Expr(1);
    if (is_empty(r_, result_axes(r_.stages[std::size_t(f_.stage)])))
      return b_.finish(launch);
    for (const Ring& ring : rings_)
      b_.mark_settled(e_.operand_buffer(ring.array.operand));
    across_ = max(ceildiv(f_.columns.extent, t_.columns), Expr(1));
    launch.workers = f_.batch.extent * across_;
    b_.when({{thread_, Expr(0), Expr(1)}}, [&] {
      for (int i = 0; i < t_.stages; ++i) {
        b_.mbarrier_init(full_, Expr(i), t_.rows);
        b_.mbarrier_init(empty_, Expr(i), t_.warps);
      }
      b_.mbarrier_init(met_, Expr(0), t_.consumers());
    });
    b_.barrier();
    b_.either(
        {{floordiv(thread_, t_.subgroup), Expr(0), Expr(t_.warps)}},
        [&] { consume(launch.workers); }, [&] { produce(launch.workers); });
    return b_.finish(launch);
  }

private:
  struct Ring {
    Staged array;
    int buffer;
    Expr place(const Expr& stage, const Expr& row, int rows) const {
      return (stage * Expr(rows) + row) * Expr(array.elements);
    }
  };

  std::int64_t results() const { return std::int64_t(left_rows_) * t_.columns; }
  ValueId i32(std::int64_t value) { return b_.constant(Scalar::of(DType::I32, double(value))); }

  GpuTile tile_of(const Expr& number) const {
    GpuTile tile;
    tile.batch.at.resize(r_.axes.size());
    put_index(tile.batch, r_, f_.batch, floordiv(number, across_));
    tile.first_row = Expr(0);
    tile.first_column = floormod(number, across_) * Expr(t_.rows);
    return tile;
  }
  /// Where row `row` of piece `piece` is, counted from the tile's first column. Neighbouring pieces
  /// are of different tiles, so that all blocks read one stretch of memory at a time.
  Expr column_at(const Expr& piece, const Expr& row) const {
    return piece * across_ * Expr(t_.rows) + row;
  }

  void each_piece(const std::function<void(const Expr& piece)>& body) {
    const Expr pieces(t_.columns / t_.rows);
    b_.loop(Expr(0), pieces, Expr(1), pieces, Bind::Serial, body);
  }

  void advance() { advance_ring(b_, stage_, parity_, t_.stages); }

  /// One lane a row.
  void produce(const Expr& tiles) {
    b_.grid_dependency_wait(true);
    b_.set(parity_, i32(1)); // the ring is empty at the start
    b_.grid_loop(tiles, [&](const Expr& number) {
      const GpuTile tile = tile_of(number);
      each_piece([&](const Expr& piece) {
        wait_for_copies();
        const Expr stage = value_symbol(b_.read(stage_));
        b_.mbarrier_wait(empty_, stage, b_.read(parity_));
        b_.when({{lane_, Expr(0), Expr(t_.rows)}}, [&] {
          b_.mbarrier_arrive(full_, stage, row_bytes_);
          const Point p = product_.of_column_within(tile, column_at(piece, lane_));
          for (const Ring& ring : rings_)
            b_.bulk_copy(ring.buffer, ring.place(stage, lane_, t_.rows),
                         e_.operand_buffer(ring.array.operand), row_begin(ring.array, p),
                         ring.array.elements, full_, stage);
        });
        advance();
      });
    });
  }

  /// Until few enough pieces are under way. A ring is as long as what can be read before the launch
  /// before has ended; but blocks that read far ahead of each other read slower.
  void wait_for_copies() {
    if (t_.flight == t_.stages)
      return;
    const ValueId begun = b_.read(begun_);
    const ValueId many = b_.apply(Op::Eq, DType::Bool, {begun, i32(t_.flight)});
    b_.when({{value_symbol(begun), Expr(t_.flight), Expr(t_.flight + 1)}}, [&] {
      b_.mbarrier_wait(full_, value_symbol(b_.read(copied_)), b_.read(copied_parity_));
      advance_ring(b_, copied_, copied_parity_, t_.stages);
    });
    b_.set(begun_, b_.apply(Op::Select, DType::I32,
                            {many, begun, b_.apply(Op::Add, DType::I32, {begun, i32(1)})}));
  }

  Expr row_begin(const Staged& array, Point p) const {
    put_index(p, r_, f_.depth, Expr(0));
    return element(array, p);
  }
  Expr element(const Staged& array, const Point& p) const {
    const Stage& stage = r_.stages[std::size_t(products_[std::size_t(array.product)].stage)];
    return *element_at(r_, stage, stage.loads[std::size_t(array.load)], p);
  }

  void consume(const Expr& tiles) {
    b_.grid_dependency_wait(false);
    b_.launch_dependents();
    const VarId phase = b_.variable({DType::I32, 1});
    const auto meet = [&] {
      b_.mbarrier_arrive(met_, Expr(0));
      const ValueId now = b_.read(phase);
      b_.mbarrier_wait(met_, Expr(0), now);
      b_.set(phase, b_.apply(Op::Xor, DType::I32, {now, i32(1)}));
    };
    b_.grid_loop(tiles, [&](const Expr& number) {
      const GpuTile tile = tile_of(number);
      hold_left(tile);
      each_piece([&](const Expr& piece) { multiply(tile, piece); });
      meet();
      product_.each_result(
          tile, left_rows_, t_.columns, thread_, t_.consumers(),
          [&](int product, const Expr& place) {
            ValueId sum = -1;
            for (int w = 0; w < t_.warps; ++w)
              sum = product_.sum_with(sum, b_.load(part_, parts_of(Expr(w), product) + place, 1));
            return sum;
          },
          [&](const Expr& column) {
            return column_at(floordiv(column, t_.rows), floormod(column, t_.rows));
          });
      meet(); // the parts have been read
    });
  }

  int steps() const { return int((f_.depth.extent.value() + t_.step() - 1) / t_.step()); }
  Expr depth_at(int step) const {
    return Expr(std::int64_t(step) * t_.step()) + thread_ * Expr(t_.lanes);
  }

  /// Where the parts of a product's sums begin that a warp has made.
  Expr parts_of(const Expr& warp, int product) const {
    return (warp * Expr(std::int64_t(products_.size())) + Expr(product)) * Expr(results());
  }

  void hold_left(const GpuTile& tile) {
    held_.clear();
    for (const ContractionForm& f : products_)
      for (int row = 0; row < left_rows_; ++row)
        for (int i = 0; i < steps(); ++i)
          held_.push_back(b_.splat(
              product_.factor(f, f.left, product_.of_row(tile, Expr(row)), depth_at(i), t_.lanes),
              t_.lanes));
  }
  ValueId held(int product, int row, int step) const {
    return held_[std::size_t((product * left_rows_ + row) * steps() + step)];
  }

  void multiply(const GpuTile& tile, const Expr& piece) {
    const Expr stage = value_symbol(b_.read(stage_));
    b_.mbarrier_wait(full_, stage, b_.read(parity_));
    const auto count = int(products_.size());
    std::vector<ValueId> sums(std::size_t(count * t_.rows * left_rows_),
                              b_.constant(Scalar::of(f_.accumulator, 0.0)));
    const auto sum_of = [&](int product, int m, int row) -> ValueId& {
      return sums[std::size_t((product * t_.rows + m) * left_rows_ + row)];
    };
    for (int m = 0; m < t_.rows; ++m) {
      const Point p = product_.of_column_within(tile, column_at(piece, Expr(m)));
      for (int product = 0; product < count; ++product) {
        const ContractionForm& f = products_[std::size_t(product)];
        std::vector<std::pair<const Ring*, Expr>> begins; // of the product's rings, of this row
        for (const Ring& ring : rings_)
          if (ring.array.product == product)
            begins.emplace_back(&ring, row_begin(ring.array, p));
        for (int i = 0; i < steps(); ++i) {
          for (const auto& [ring, begin] : begins)
            provide(*ring, p, begin, ring->place(stage, Expr(m), t_.rows), depth_at(i));
          const ValueId w =
              b_.splat(product_.factor(f, f.right, p, depth_at(i), t_.lanes), t_.lanes);
          for (int row = 0; row < left_rows_; ++row) {
            ValueId& sum = sum_of(product, m, row);
            sum = product_.dot(held(product, row, i), w, t_.lanes, sum);
          }
          e_.forget_loads();
        }
      }
    }
    b_.subgroup_barrier();
    b_.when({{lane_, Expr(0), Expr(1)}}, [&] { b_.mbarrier_arrive(empty_, stage); });
    for (int product = 0; product < count; ++product)
      for (int m = 0; m < t_.rows; ++m)
        for (int row = 0; row < left_rows_; ++row)
          b_.store(part_,
                   parts_of(floordiv(thread_, t_.subgroup), product) +
                       Expr(std::int64_t(row) * t_.columns) + piece * Expr(t_.rows) + Expr(m),
                   b_.reduce_threads(Monoid::Sum, sum_of(product, m, row), t_.subgroup),
                   {{lane_, Expr(0), Expr(1)}});
    advance();
  }

  /// What an array's load at the point gives comes from the ring: its row begins there at `place`,
  /// and in memory at `begin`.
  void provide(const Ring& ring, Point p, const Expr& begin, const Expr& place, const Expr& k) {
    p.lanes = t_.lanes;
    put_lanes(p, r_, f_.depth, k, t_.lanes);
    const Expr offset = element(ring.array, p), there = place + (offset - begin);
    const Stage& stage = r_.stages[std::size_t(products_[std::size_t(ring.array.product)].stage)];
    e_.provide_load(stage, stage.loads[std::size_t(ring.array.load)], p,
                    b_.load(ring.buffer, there, depends_on_lane(there) ? t_.lanes : 1,
                            unproved(lanes_inside(f_.depth, k, t_.lanes))));
  }

  const Region& r_;
  const std::vector<ContractionForm>& products_;
  const ContractionForm& f_; ///< for what they have in common
  const RingTiles& t_;
  const Schedule& s_;
  ProgramBuilder b_;
  Emitter e_;
  FewRows product_;
  int left_rows_;
  std::int64_t row_bytes_; ///< of all matrices
  Expr thread_, lane_, across_;
  VarId stage_, parity_; ///< of the ring: its next piece, and the parity of the phase to wait for
  /// Where copies are bounded: pieces that were begun and are waited for, the first of them, and
  /// the parity of its phase.
  VarId begun_{}, copied_{}, copied_parity_{};
  std::vector<Ring> rings_;
  std::vector<ValueId> held_; ///< of the left sides, by product, row and step
  int full_ = -1, empty_ = -1, met_ = -1, part_ = -1;
};

/// Rows of a piece, in whole slices and at most `most` where that is some: as many as leave little
/// of the last piece of a tile of `columns` empty.
std::int64_t rows_of_piece(std::int64_t columns, std::int64_t most, std::int64_t slices) {
  most = std::max(most / slices * slices, slices);
  const auto empty = [&](std::int64_t rows) {
    return ceil_quotient(columns, rows) * rows - columns;
  };
  std::int64_t best = most;
  for (std::int64_t rows = most; rows >= slices; rows -= slices) {
    if (empty(rows) < empty(best))
      best = rows;
    if (empty(best) <= columns / 32)
      break;
  }
  return best;
}

constexpr std::int64_t kSumBytes = 16 << 10;   ///< of a block's shared memory
constexpr std::int64_t kOtherBytes = 24 << 10; ///< which a ring leaves to small kernels beside it
constexpr std::int64_t kMostStages = 16;
constexpr std::int64_t kFlightBytes = 64 << 10; ///< that a block has asked for at a time

std::string refused(const Region& region, const FoundRing& found, const RingTiles& tiles) {
  const ContractionForm& f = found.products.front();
  if (tiles.columns % tiles.rows != 0 || tiles.rows % f.columns.slices != 0)
    return "a tile has some rows of a piece, or a piece some of a column's slices";
  if (tiles.flight > tiles.stages)
    return "more pieces in flight than the ring has";
  if (tiles.rows > tiles.subgroup)
    return "more rows of a piece than lanes that copy them";
  const std::int64_t rows = f.rows.extent.value(),
                     held = ceil_quotient(f.depth.extent.value(), tiles.step()) * tiles.lanes;
  if (held * rows * left_sides(region, found) > kMostHeld)
    return "more of the rows than a thread has registers for";
  if (held * rows * tiles.rows * std::int64_t(found.products.size()) > kMostProducts)
    return "more products for a piece than code should have";
  return "";
}

class GpuRingGenerator : public Generator {
public:
  std::string name() const override { return "gpu_ring"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    constexpr std::int64_t kLeastBytes = 48 << 10; // of the matrix, for each block
    constexpr std::int64_t kMostRows = 4; // the arithmetic of more takes longer than the reading
    if (!target.has(Capability::BulkTensorCopies))
      return {};
    const FoundRing found = find_ring(region);
    if (!found.reason.empty())
      return {};
    const ContractionForm& f = found.products.front();
    const std::int64_t rows = f.rows.extent.value(), columns = f.columns.extent.value(),
                       row_bytes = found.row_bytes(), workers = std::max(target.workers, 1),
                       batch = f.batch.extent.value();
    if (rows > kMostRows || row_bytes * columns * batch < kLeastBytes * workers)
      return {};
    const std::int64_t sums =
        rows * std::int64_t(found.products.size()) * std::int64_t(size_of(f.accumulator));
    std::vector<Schedule> space;
    for (const std::int64_t piece : {32 << 10, 64 << 10, 16 << 10})
      for (const std::int64_t warps : {8, 16, 4}) {
        // Each thread has work along the depth.
        if (warps * target.subgroup * ring_lanes(region, f) > 2 * f.depth.extent.value())
          continue;
        // Each block has one tile, or as many as the others.
        const std::int64_t slices = f.columns.slices,
                           most = std::max<std::int64_t>(kSumBytes / (warps * sums), slices),
                           across = std::max<std::int64_t>(1, workers / batch);
        std::int64_t each = ceil_quotient(columns, across);
        each = ceil_quotient(each, ceil_quotient(each, most));
        const std::int64_t of_piece = rows_of_piece(
            each, std::clamp<std::int64_t>(piece / row_bytes, 1, kMostPieceRows), slices);
        each = ceil_quotient(each, of_piece) * of_piece;
        const std::int64_t stages =
            std::min<std::int64_t>((target.block_shared_bytes - kOtherBytes - warps * sums * each) /
                                       (of_piece * row_bytes),
                                   kMostStages);
        Schedule s;
        s.generator = name();
        s.knobs = {{"warps", warps}, {"rows", of_piece}, {"stages", stages}, {"columns", each}};
        if (const std::int64_t flight =
                std::max<std::int64_t>(2, kFlightBytes / (of_piece * row_bytes));
            flight < stages)
          s.knobs["flight"] = flight;
        if (stages >= 3 && refused(region, found, ring_tiles_of(s, region, f, target)).empty() &&
            std::find(space.begin(), space.end(), s) == space.end())
          space.push_back(std::move(s));
      }
    return space;
  }

  Lowered lower(const Region& region, const Schedule& schedule,
                const Target& target) const override {
    if (!target.has(Capability::BulkTensorCopies))
      return {false, {}, "the target has no bulk copies"};
    const FoundRing found = find_ring(region);
    if (!found.reason.empty())
      return {false, {}, found.reason};
    if (auto why = refused_settings(schedule, target, kGpuRingKnobs); !why.empty())
      return {false, {}, why};
    const ContractionForm& f = found.products.front();
    const RingTiles tiles = ring_tiles_of(schedule, region, f, target);
    if (auto why = refused(region, found, tiles); !why.empty())
      return {false, {}, why};
    return within_block(GpuRing(region, found, tiles, schedule).run(), target);
  }
};

} // namespace

const Generator& gpu_ring_generator() {
  static const GpuRingGenerator generator;
  return generator;
}

} // namespace egret::kernel

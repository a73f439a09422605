#include "kernel/gpu_stationary.h"

#include "kernel/analysis.h"
#include "kernel/contraction_pack.h"
#include "kernel/gpu_nest.h"
#include "support/checked.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace egret::kernel {

namespace {

constexpr int kAccessLanes = 4;       ///< elements of an access to shared memory
constexpr int kMostStationary = 1024; ///< threads
/// Registers of a thread beside those that hold factors and sums.
constexpr std::int64_t kWorkingRegisters = 40;
constexpr std::int64_t kOtherShared = 8192;  ///< bytes that renderers may need for themselves
constexpr std::int64_t kMostUnrolled = 2048; ///< multiplications in the text of a step

std::int64_t ceil_to(std::int64_t n, std::int64_t multiple) {
  return ceil_quotient(n, multiple) * multiple;
}

FoundContraction stationary_form(const Region& region) {
  FoundContraction found = find_contraction(region, true, true);
  if (!found.ok)
    return found;
  ContractionForm& f = found.form;
  const auto refused = [](const char* why) { return FoundContraction{false, {}, why}; };
  for (const AxisGroup* group : {&f.rows, &f.columns, &f.depth})
    if (!group->extent.is_constant())
      return refused("its sizes are no constants");
  if (!f.batch.axes.empty())
    return refused("it is a product of several matrices");
  if (f.rows.axes.size() > 1)
    return refused("its rows are no single axis");
  if (f.columns.axes.empty() || f.depth.extent.value() < 1 || f.rows.extent.value() < 1)
    return refused("it has no columns or no depth");
  f.columns.run = 1;
  return found;
}

/// Sizes that follow from the tiles.
struct StationarySizes {
  std::int64_t rows = 0, all_places = 0, slices = 1, depth = 0; ///< of the product
  std::int64_t places = 0;                                      ///< of a block, in each slice
  std::int64_t part = 0;                 ///< elements of the depth that a thread has
  std::int64_t pitch = 0;                ///< elements of shared memory for a part of a row
  std::int64_t weights = 0, spilled = 0; ///< of a thread: elements, and those in shared memory

  StationarySizes(const ContractionForm& f, std::int64_t shares, std::int64_t split,
                  std::int64_t held)
      : rows(f.rows.extent.value()), all_places(f.columns.slice_extent().value()),
        slices(f.columns.slices), depth(f.depth.extent.value()),
        places(ceil_quotient(all_places, shares)), part(ceil_quotient(depth, split)) {
    pitch = ceil_to(part, kAccessLanes);
    if (split > 1 && pitch / kAccessLanes % 2 == 0) // parts of a row begin in banks of their own
      pitch += kAccessLanes;
    weights = part * slices;
    spilled = ceil_to(std::max<std::int64_t>(weights - held, 0), kAccessLanes);
  }
  std::int64_t shared_bytes(std::int64_t block_rows, std::int64_t split, int threads,
                            std::int64_t size) const {
    return (block_rows * split * pitch + block_rows * slices * places + spilled * threads) * size +
           64;
  }
};

class GpuStationary {
public:
  GpuStationary(const Region& region, const ContractionForm& form, const StationaryTiles& tiles,
                const CarriedRows* carried)
      : r_(region), f_(form), t_(tiles), carried_(carried),
        size_(form, tiles.shares, tiles.split, tiles.held), b_(region.name), e_(b_, region),
        thread_(thread_variable(tiles.threads)), place_(floordiv(thread_, t_.split)),
        part_(floormod(thread_, t_.split)) {
    e_.load_policy = CachePolicy::Default;
  }

  KernelProgram run() {
    const std::int64_t split = t_.split;
    staged_ = b_.shared("rows", f_.accumulator, t_.rows * split * size_.pitch);
    sums_ = b_.shared("sums", f_.accumulator, t_.rows * size_.slices * size_.places);
    if (size_.spilled > 0)
      rest_ = b_.shared("factor", f_.accumulator, size_.spilled * t_.threads);
    load_factor();
    Launch launch;
    launch.threads = t_.threads;
    launch.blocks_per_core = 1;
    launch.workers = Expr(ceil_quotient(size_.rows, t_.rows));
    b_.grid_loop(launch.workers, [&](const Expr& number) {
      first_row_ = number * Expr(t_.rows);
      const auto stage = [&] {
        stage_rows();
        b_.barrier();
      };
      if (carried_ == nullptr)
        stage();
      else
        b_.when({{stationary_turn(), Expr(0), Expr(1)}}, stage);
      multiply();
      b_.barrier();
      finish();
    });
    return b_.finish(launch);
  }

private:
  /// A factor at a point, in the accumulator's type; zero where `inside` does not hold.
  ValueId factor(const Side& side, Point p, const std::vector<Guard>& inside) {
    const Factor made = factor_of(r_, f_, side);
    p.mask = unproved(inside);
    ValueId v = b_.cast(e_.value(f_.stage, made.value, p).id, f_.accumulator);
    if (!made.is_padded_load && !p.mask.empty()) // of what is not there, anything could be made
      v = b_.apply(Op::Select, f_.accumulator, {b_.test(p.mask, 1), v, zero()});
    return v;
  }
  ValueId zero() { return b_.constant(Scalar::of(f_.accumulator, 0.0), 1); }

  /// Of all places of a slice, one of this block's.
  Expr in_slice(const Expr& place) const {
    return t_.shares == 1 ? place : stationary_share(t_.shares) * Expr(size_.places) + place;
  }
  void put_column(Point& p, const Expr& place, std::int64_t slice) const {
    AxisGroup of_slice = f_.columns;
    of_slice.extent = f_.columns.slice_extent();
    of_slice.slices = 1;
    put_index(p, r_, of_slice, in_slice(place));
    if (f_.columns.slice_axis >= 0)
      p.at[static_cast<std::size_t>(f_.columns.slice_axis)] = Expr(slice);
  }

  /// Elements of this thread in the order in which they are used: by place of its part of the
  /// depth, by slice.
  void load_factor() {
    for (std::int64_t i = 0; i < size_.weights; ++i) {
      Point p;
      p.at.resize(r_.axes.size());
      const Expr depth = part_ * Expr(size_.part) + Expr(i / size_.slices);
      put_column(p, place_, i % size_.slices);
      put_index(p, r_, f_.depth, depth);
      const ValueId v = factor(f_.right, p,
                               {{depth, Expr(0), Expr(size_.depth)},
                                {place_, Expr(0), Expr(size_.places)},
                                {in_slice(place_), Expr(0), Expr(size_.all_places)}});
      if (i < t_.held)
        held_.push_back(v);
      else
        b_.store(rest_, rest_at(i - t_.held) + Expr((i - t_.held) % kAccessLanes), v);
    }
    for (std::int64_t i = size_.weights - t_.held; i < size_.spilled; ++i)
      b_.store(rest_, rest_at(i) + Expr(i % kAccessLanes), zero());
  }
  Expr rest_at(std::int64_t i) const {
    return (Expr(i / kAccessLanes * t_.threads) + thread_) * Expr(kAccessLanes);
  }

  /// The left factor's rows go to shared memory, in parts of the depth with zeros behind each.
  void stage_rows() {
    const std::int64_t padded = ceil_to(size_.part, kAccessLanes), row = t_.split * padded,
                       all = t_.rows * row;
    for (std::int64_t first = 0; first < all; first += t_.threads) {
      const Expr number = thread_ + Expr(first);
      const auto copy = [&] {
        const Expr at = floordiv(number, row), in_row = floormod(number, row);
        const Expr part = floordiv(in_row, padded), in_part = floormod(in_row, padded),
                   depth = part * Expr(size_.part) + in_part;
        Point p;
        p.at.resize(r_.axes.size());
        if (!f_.rows.axes.empty())
          put_index(p, r_, f_.rows, first_row_ + at);
        put_index(p, r_, f_.depth, depth);
        const ValueId v = factor(f_.left, p,
                                 {{in_part, Expr(0), Expr(size_.part)},
                                  {depth, Expr(0), Expr(size_.depth)},
                                  {first_row_ + at, Expr(0), Expr(size_.rows)}});
        b_.store(staged_, (at * Expr(t_.split) + part) * Expr(size_.pitch) + in_part, v);
      };
      if (first + t_.threads <= all)
        copy();
      else
        b_.when({{number, Expr(0), Expr(all)}}, copy);
    }
  }

  Expr staged_at(const Expr& row, const Expr& depth) const {
    return (row * Expr(t_.split) + floordiv(depth, size_.part)) * Expr(size_.pitch) +
           floormod(depth, size_.part);
  }

  ValueId multiply_add(ValueId a, ValueId b, ValueId c) {
    if (is_float(f_.accumulator))
      return b_.fma(a, b, c);
    return b_.apply(Op::Add, f_.accumulator, {c, b_.apply(Op::Mul, f_.accumulator, {a, b})});
  }

  /// Element `i` of the thread's part of the right factor.
  ValueId held(std::int64_t i) {
    if (i < t_.held)
      return held_[static_cast<std::size_t>(i)];
    const std::int64_t at = i - t_.held;
    if (at / kAccessLanes != loaded_) {
      loaded_ = at / kAccessLanes;
      loaded_vector_ = b_.load(rest_, rest_at(at) + lane_variable(kAccessLanes), kAccessLanes);
    }
    return b_.extract(loaded_vector_, static_cast<int>(at % kAccessLanes));
  }

  /// What the threads of a place have summed goes to shared memory.
  void multiply() {
    loaded_ = -1;
    const auto count = static_cast<std::size_t>(t_.rows * size_.slices);
    std::vector<ValueId> sums(count, zero());
    for (std::int64_t first = 0; first < size_.part; first += kAccessLanes) {
      std::vector<ValueId> rows;
      for (std::int64_t r = 0; r < t_.rows; ++r)
        rows.push_back(b_.load(staged_,
                               (Expr(r * t_.split) + part_) * Expr(size_.pitch) + Expr(first) +
                                   lane_variable(kAccessLanes),
                               kAccessLanes));
      for (std::int64_t k = first; k < std::min(first + kAccessLanes, size_.part); ++k)
        for (std::int64_t s = 0; s < size_.slices; ++s) {
          const ValueId w = held(k * size_.slices + s);
          for (std::int64_t r = 0; r < t_.rows; ++r) {
            ValueId& sum = sums[static_cast<std::size_t>(r * size_.slices + s)];
            const ValueId x =
                b_.extract(rows[static_cast<std::size_t>(r)], static_cast<int>(k - first));
            sum = multiply_add(x, w, sum);
          }
        }
    }
    for (std::int64_t r = 0; r < t_.rows; ++r)
      for (std::int64_t s = 0; s < size_.slices; ++s) {
        const ValueId own = sums[static_cast<std::size_t>(r * size_.slices + s)];
        const ValueId all =
            t_.split > 1 ? b_.reduce_threads(Monoid::Sum, own, static_cast<int>(t_.split)) : own;
        const Expr storer(r % t_.split);
        b_.store(
            sums_, sum_at(Expr(r), s, place_), all,
            unproved({{part_, storer, storer + Expr(1)}, {place_, Expr(0), Expr(size_.places)}}));
      }
  }
  Expr sum_at(const Expr& row, std::int64_t slice, const Expr& place) const {
    return (row * Expr(size_.slices) + Expr(slice)) * Expr(size_.places) + place;
  }

  /// What becomes of the sums: a thread takes the same place of all slices.
  void finish() {
    const std::int64_t results = t_.rows * size_.places;
    for (std::int64_t first = 0; first < results; first += t_.threads) {
      const Expr number = thread_ + Expr(first);
      b_.when({{number, Expr(0), Expr(results)}}, [&] {
        const Expr row = floordiv(number, size_.places), place = floormod(number, size_.places);
        std::vector<ValueId> sums;
        for (std::int64_t s = 0; s < size_.slices; ++s)
          sums.push_back(b_.load(sums_, sum_at(row, s, place), 1));
        Point p;
        p.at.resize(r_.axes.size());
        if (!f_.rows.axes.empty())
          put_index(p, r_, f_.rows, first_row_ + row);
        put_column(p, place, 0);
        p.mask = unproved({{first_row_ + row, Expr(0), Expr(size_.rows)},
                           {in_slice(place), Expr(0), Expr(size_.all_places)}});
        store_results(e_, f_, p, sums);
        if (carried_ == nullptr)
          return;
        const Output& out = r_.outputs[static_cast<std::size_t>(carried_->output)];
        const Value result = e_.result(out.stage, out.component, p);
        const ValueId rounded = e_.narrow(e_.convert(result, out.dtype));
        b_.store(staged_, staged_at(row, place), b_.cast(rounded, f_.accumulator));
      });
    }
  }

  const Region& r_;
  const ContractionForm& f_;
  const StationaryTiles& t_;
  const CarriedRows* carried_;
  StationarySizes size_;
  ProgramBuilder b_;
  Emitter e_;
  Expr thread_, place_, part_, first_row_;
  int staged_ = -1, sums_ = -1, rest_ = -1;
  std::vector<ValueId> held_;
  std::int64_t loaded_ = -1; ///< vector of shared memory that was loaded last
  ValueId loaded_vector_ = -1;
};

// --- Loads of operands before the product

/// Loads of operands that the maps behind the product need move to the begin of a step, so that
/// they are under way while the product is made. Out of a condition they come by variables.
class EarlyLoads {
public:
  explicit EarlyLoads(KernelProgram& program) : p_(program) {}

  /// `body`: of the loop over blocks; those behind its last barrier.
  void run(Block& body) {
    std::size_t barrier = 0;
    for (std::size_t i = 0; i < body.size(); ++i)
      if (get_if<Barrier>(body[i]))
        barrier = i;
    Block early, rest(std::make_move_iterator(body.begin()),
                      std::make_move_iterator(body.begin() + static_cast<std::ptrdiff_t>(barrier)));
    for (std::size_t i = barrier; i < body.size(); ++i) {
      const auto* load = made_by<inst::Load>(body[i]);
      if (load && may_leave(*load)) {
        early.push_back(std::move(body[i]));
        continue;
      }
      if (If* last = get_if<If>(body[i]); last && last->otherwise.empty())
        if (Block loads = taken_from(last->body); !loads.empty())
          early.push_back(If{last->condition, std::move(loads), {}});
      rest.push_back(std::move(body[i]));
    }
    body = std::move(early);
    body.insert(body.end(), std::make_move_iterator(rest.begin()),
                std::make_move_iterator(rest.end()));
  }

private:
  static bool has_values(const Expr& e) {
    const std::vector<Expr> variables = variables_of(e);
    return std::any_of(variables.begin(), variables.end(),
                       [](const Expr& v) { return value_of(v).has_value(); });
  }
  bool may_leave(const inst::Load& load) const {
    return p_.buffers[static_cast<std::size_t>(load.from.buffer)].space == Space::Argument &&
           !has_values(load.from.index) &&
           std::none_of(load.mask.begin(), load.mask.end(), [](const Guard& g) {
             return has_values(g.value) || has_values(g.lo) || has_values(g.hi);
           });
  }
  Block taken_from(Block& body) {
    Block early;
    for (Stmt& s : body) {
      Let* let = get_if<Let>(s);
      const auto* load = let ? get_if<inst::Load>(let->inst) : nullptr;
      if (!load || !may_leave(*load))
        continue;
      const auto variable = static_cast<VarId>(p_.variables.size());
      const auto value = static_cast<ValueId>(p_.values.size());
      p_.variables.push_back(let->inst.type);
      p_.values.push_back(let->inst.type);
      early.push_back(Let{value, let->inst});
      early.push_back(Assign{variable, value});
      let->inst.op = inst::Read{variable};
    }
    return early;
  }

  KernelProgram& p_;
};

/// How often blocks follow each other on a multiprocessor. Clusters do not fill every one: they lie
/// in parts of the chip of several sizes.
double waves_of(const StationarySizes& z, const StationaryTiles& t, const Target& target) {
  const double blocks = double(ceil_quotient(z.rows, t.rows) * t.shares);
  const double fit = t.shares > 1 ? 0.75 * target.workers : target.workers;
  return std::ceil(blocks / std::max(1.0, fit));
}

/// Each block reads its part of the right factor from the second cache.
double load_seconds(const StationarySizes& z, const StationaryTiles& t, std::int64_t size,
                    const Target& target) {
  constexpr double kLatency = 1e-6, kBytes = 5e10; // a second, of a multiprocessor
  return waves_of(z, t, target) *
         (kLatency + double(z.weights) * double(t.threads) * double(size) / kBytes);
}

double step_seconds(const StationarySizes& z, const StationaryTiles& t, double epilogue,
                    const Target& target) {
  // No GPU has measured these: three barriers, the way to the second cache and back, and the
  // functions of a gate, one after the other; where blocks share columns, their barrier and the
  // left factor's way through the second cache; four schedulers, and 128 bytes of shared memory a
  // cycle.
  constexpr double kClock = 1.7e9, kSchedulers = 4, kFixedCycles = 700, kExchangeCycles = 900,
                   kSharedBytes = 128;
  const double warps = std::ceil(double(t.threads) / 32 / kSchedulers), rows = double(t.rows),
               lanes = double(t.threads);
  const double products = double(z.weights) * rows;
  const double vectors = std::ceil(double(z.part) / kAccessLanes) * rows;
  const double shuffles = 2 * std::log2(double(t.split)) * double(z.slices) * rows;
  const double issue = warps * (products + vectors + shuffles + double(z.slices) * rows);
  const double chain = 4.0 * double(z.part) + 25 * std::log2(double(t.split));
  // A vector of a warp's threads at one place is one access of 16 bytes for each part.
  const double shared =
      (double(z.spilled) * lanes * 4 + lanes / 32 * vectors * double(t.split) * 16) / kSharedBytes;
  const double ends = std::ceil(rows * double(z.places) / (32 * kSchedulers * 4)) * 4 * epilogue;
  const double waves = waves_of(z, t, target);
  const double fixed = kFixedCycles + (t.shares > 1 ? kExchangeCycles : 0);
  return (fixed + waves * (std::max({issue, chain, shared}) + ends)) / kClock;
}

std::vector<std::int64_t> rows_to_try(const StationaryLimits& limits) {
  return limits.rows > 0 ? std::vector{limits.rows} : std::vector<std::int64_t>{1, 2, 4, 8};
}

} // namespace

FoundStationary stationary_tiles(const Region& region, const Target& target,
                                 const StationaryLimits& limits) {
  const FoundContraction found = stationary_form(region);
  if (!target.is_gpu())
    return {false, {}, "registers of threads of a GPU hold the factor"};
  if (!found.ok)
    return {false, {}, found.reason};
  const ContractionForm& f = found.form;
  const auto size = static_cast<std::int64_t>(size_of(f.accumulator));
  const std::int64_t words = std::max<std::int64_t>(1, size / 4);
  FoundStationary best{false, {}, "its right factor does not fit a block"};
  for (const std::int64_t split : {1, 2, 4, 8, 16, 32})
    for (const std::int64_t rows : rows_to_try(limits)) {
      StationaryTiles t{.rows = rows, .shares = limits.shares, .split = split};
      const StationarySizes all(f, t.shares, split, 0);
      const std::int64_t needed = ceil_to(all.places * split, 32);
      if (rows > all.rows || (split > 1 && split > all.depth) || needed > kMostStationary ||
          (limits.threads > 0 && needed > limits.threads) || all.weights * rows > kMostUnrolled)
        continue;
      t.threads = limits.threads > 0 ? limits.threads : static_cast<int>(needed);
      const std::int64_t free = target.registers_of_thread(t.threads) - kWorkingRegisters -
                                limits.taken_registers - rows * (all.slices + kAccessLanes) * words;
      if (free < 0)
        continue;
      t.held = std::min(all.weights, free / words / kAccessLanes * kAccessLanes);
      const StationarySizes z(f, t.shares, split, t.held);
      t.registers = t.held * words;
      t.shared_bytes = z.shared_bytes(rows, split, t.threads, size);
      if (t.shared_bytes + limits.taken_shared_bytes > target.block_shared_bytes - kOtherShared)
        continue;
      t.seconds = step_seconds(z, t, 30 + f.epilogue_flops, target);
      t.load_seconds = load_seconds(z, t, size, target);
      if (!best.ok || t.seconds < 0.97 * best.tiles.seconds)
        best = {true, t, {}};
    }
  return best;
}

Lowered stationary_program(const Region& region, const Target& target, const StationaryTiles& tiles,
                           const CarriedRows* carried) {
  const FoundContraction found = stationary_form(region);
  if (!found.ok)
    return {false, {}, found.reason};
  KernelProgram program = GpuStationary(region, found.form, tiles, carried).run();
  For& rows = *get_if<For>(program.body.back());
  rows.keeps_invariants = true; // the factor, part of which goes to shared memory
  EarlyLoads(program).run(rows.body);
  verify(program);
  return within_block(std::move(program), target);
}

Expr stationary_turn() {
  static const Expr turn = Expr::symbol("%turn", 0, INT32_MAX);
  return turn;
}

Expr stationary_share(std::int64_t shares) {
  return Expr::symbol(fmt::format("%share_of_{}", shares), 0, shares - 1);
}

std::vector<CarriedRows> carried_rows(const Region& region) {
  const FoundContraction found = stationary_form(region);
  if (!found.ok)
    return {};
  const ContractionForm& f = found.form;
  const Stage& product = region.stages[static_cast<std::size_t>(f.stage)];
  const Factor left = factor_of(region, f, f.left);
  if (!left.is_load || f.depth.axes.size() != 1 || f.columns.axes.size() != 1 ||
      !(f.depth.extent == f.columns.slice_extent()))
    return {};
  // Offsets over the row and the element in it.
  const Expr row = Expr::symbol("%row", 0, INT32_MAX),
             element = Expr::symbol("%element", 0, INT32_MAX);
  const auto over = [&](const Expr& offset, const std::vector<int>& axes, int along) {
    return substitute(offset, [&](const Expr& v) -> std::optional<Expr> {
      for (std::size_t i = 0; i < axes.size(); ++i)
        if (v.is_axis() && v.axis_number() == static_cast<int>(i)) {
          if (!f.rows.axes.empty() && axes[i] == f.rows.axes[0])
            return row;
          if (axes[i] == along)
            return element;
        }
      return std::nullopt;
    });
  };
  const BodyValue& value = product.body[static_cast<std::size_t>(left.value)];
  if (value.kind != BodyValue::Kind::Load)
    return {};
  const Load& load = product.loads[static_cast<std::size_t>(value.load)];
  if (load.source != Source::Operand || !load.indirect.empty() || !load.map.holes.empty())
    return {};
  const Expr read = over(offset_of(region, load), product.axes, f.depth.axes[0]);
  std::vector<CarriedRows> carried;
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    const Output& out = region.outputs[o];
    const std::vector<int> axes = result_axes(region.stages[static_cast<std::size_t>(out.stage)]);
    if (out.dtype == region.operands[static_cast<std::size_t>(load.number)].dtype &&
        out.combine == Combine::Store && out.map.holes.empty() &&
        over(offset_of(out), axes, f.columns.axes[0]) == read)
      carried.push_back({load.number, static_cast<int>(o)});
  }
  return carried;
}

int stationary_rows(const Region& region) {
  const FoundContraction found = stationary_form(region);
  return found.ok && !found.form.rows.axes.empty() ? found.form.rows.axes[0] : -1;
}

} // namespace egret::kernel

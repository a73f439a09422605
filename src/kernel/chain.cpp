#include "kernel/chain.h"

#include "kernel/analysis.h"
#include "kernel/clusters.h"
#include "kernel/contraction_form.h"
#include "kernel/gpu_contraction_tiles.h"
#include "kernel/gpu_row_maps.h"
#include "kernel/gpu_stationary.h"
#include "kernel/program_fields.h"
#include "kernel/splice.h"
#include "kernel/touched_memory.h"
#include "support/checked.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace egret::kernel {

namespace {

/// What a kernel does, for a turn: the rows are those of the chain's loop, and buffers begin where
/// they do in that turn.
struct InTurn : FieldVisitor<InTurn> {
  const std::map<int, Expr>* begins = nullptr; ///< by buffer
  Expr own_rows, rows, own_thread, thread, turn, own_share, share;
  void visit(Expr& e) const {
    e = substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (v == own_rows)
        return rows;
      if (v == own_thread)
        return thread;
      if (v == own_share)
        return share;
      return v == stationary_turn() ? std::optional(turn) : std::nullopt;
    });
  }
  void visit(Address& address) const {
    visit(address.index);
    if (auto it = begins->find(address.buffer); it != begins->end())
      address.index = address.index + it->second;
  }
};

/// Between kernels of which each needs the result of the one before, beside their own time; and
/// from the begin of one to that of the next at the least. Measured were 2.1 us of cells of width 8
/// and 8.3 us of 64 rows of width 256 (bench/gpu_notes.md).
constexpr double kLaunchGapSeconds = 1.2e-6, kShortestLaunchSeconds = 2.2e-6;
/// Of a kernel whose threads do not meet, about: from memory to memory and a few functions.
constexpr double kPlainSeconds = 1e-6;
/// Of a thread for a second product in a kernel, beside those that hold its factor.
constexpr std::int64_t kRegistersOfAnother = 8;
/// Of what a block has written, to where it reads it: beside what it keeps.
constexpr double kMemorySeconds = 0.4e-6;
constexpr double kClusterSeconds = 0.2e-6; ///< of a cluster's barrier, beside a block's
/// Of such a kernel alone; its work goes to one block or cluster.
constexpr std::int64_t kMostPlainBlocks = 8;

class Chaining {
public:
  /// `all_rows`: in one block or cluster.
  Chaining(const ChainProblem& problem, const Target& target, bool all_rows)
      : c_(problem), target_(target), all_rows_(all_rows), splice_(problem.name) {}

  LoweredChain run() {
    if (auto why = lower_steps(); !why.empty())
      return refused(why);
    find_written();
    if (auto why = blocks_wait_for_others(); !why.empty()) {
      rows_mix_ = true;
      return refused(why);
    }
    declare_arguments();
    if (!reason_.empty())
      return refused(reason_);
    return built();
  }
  /// Whether run() refused the chain because rows of several blocks mix.
  bool rows_mix() const { return rows_mix_; }

private:
  static LoweredChain refused(std::string why) {
    LoweredChain lowered;
    lowered.reason = std::move(why);
    return lowered;
  }
  std::size_t period() const { return c_.period.size(); }
  const std::vector<MemoryRange>& places(std::size_t turn, std::size_t kernel) const {
    return c_.places[turn * period() + kernel];
  }
  std::size_t turns() const { return static_cast<std::size_t>(c_.turns); }

  /// How the kernels of a turn share blocks.
  struct Tiling {
    std::int64_t shares = 1; ///< StationaryTiles
    int threads = 0;
    bool all_rows = false;                             ///< in one block, or one cluster
    std::vector<std::optional<StationaryTiles>> tiles; ///< by kernel; none: it is no product
    std::vector<std::optional<RowMap>> maps;           ///< by kernel; none: it has all rows
    std::int64_t rows = 0;                             ///< of a block
    double seconds = 0;                                ///< of a turn
    double load_seconds = 0;                           ///< before the first one
    std::string reason;                                ///< why there is none
  };

  /// Programs of one turn, with blocks of the same threads and the same rows.
  std::string lower_steps() {
    plain_programs_.resize(period());
    Tiling best;
    std::string reason;
    for (std::int64_t shares = 1; shares <= most_shares(); shares *= 2) {
      Tiling tiling = tiling_of(shares);
      if (!tiling.reason.empty())
        reason = reason.empty() ? tiling.reason : reason;
      else if (best.tiles.empty() || all_seconds(tiling) < 0.95 * all_seconds(best))
        best = std::move(tiling);
    }
    if (best.tiles.empty())
      return reason;
    shares_ = best.shares;
    threads_ = best.threads;
    seconds_ = all_seconds(best);
    row_maps_ = best.maps;
    for (std::size_t k = 0; k < period(); ++k) {
      const Region& region = *c_.period[k];
      plain_.push_back(!best.tiles[k] && !best.maps[k]);
      if (best.maps[k]) {
        programs_.push_back(row_map_program(region, *best.maps[k], all_rows(), block_of(best)));
        continue;
      }
      if (plain_.back()) {
        programs_.push_back(*plain_program(k));
        continue;
      }
      const std::optional<CarriedRows> carried =
          shares_ == 1 ? carried_between_turns() : std::nullopt;
      Lowered lowered =
          stationary_program(region, target_, *best.tiles[k], carried ? &*carried : nullptr);
      if (!lowered.ok)
        return fmt::format("{}: {}", region.name, lowered.reason);
      programs_.push_back(std::move(lowered.program));
    }
    blocks_ = best.all_rows ? Expr(1) : Expr(ceil_quotient(all_rows(), best.rows));
    for (std::size_t k = 0; k < period(); ++k) {
      const KernelProgram& p = programs_[k];
      if (!(plain_[k] || p.launch.workers == blocks_) ||
          std::any_of(p.dims.begin(), p.dims.end(), [&](const Expr& d) { return !is_own(d); }))
        return "its kernels have other blocks";
    }
    return {};
  }

  /// What the kernels of a block have in common.
  static StationaryTiles block_of(const Tiling& t) {
    StationaryTiles block;
    block.rows = t.rows;
    block.shares = t.shares;
    block.threads = t.threads;
    return block;
  }

  double all_seconds(const Tiling& t) const {
    return t.load_seconds + t.seconds * static_cast<double>(c_.turns);
  }

  /// Of the launches of a turn, each of which needs the result of the one before.
  double launch_seconds() const {
    double seconds = 0;
    for (const Region* region : c_.period) {
      const FoundContraction found = find_contraction(*region, true, true);
      const double product =
          found.ok ? gpu_contraction_seconds(*region, found.form, target_) : HUGE_VAL;
      seconds += std::isfinite(product)
                     ? std::max(kShortestLaunchSeconds, kLaunchGapSeconds + product)
                     : kShortestLaunchSeconds;
    }
    return seconds;
  }

  /// Symbols that the chain knows.
  bool is_own(const Expr& dim) const {
    return dim == stationary_turn() || dim == stationary_share(shares_);
  }

  /// Blocks of a cluster at the most.
  std::int64_t most_shares() const {
    return target_.has(Capability::BlockClusters) ? kPortableCluster : 1;
  }

  /// Kernels that are no products go by the blocks' rows where they can; else they run as they
  /// would alone, where one block or cluster has all rows.
  Tiling tiling_of(std::int64_t shares) {
    Tiling t;
    t.shares = shares;
    t.all_rows = all_rows_;
    for (std::size_t k = 0; k < period(); ++k) {
      const Region& region = *c_.period[k];
      const FoundStationary found = stationary_tiles(region, target_, {.shares = shares});
      t.tiles.push_back(found.ok ? std::optional(found.tiles) : std::nullopt);
      t.maps.push_back(found.ok || all_rows_ || !has_rows() ? std::nullopt
                                                            : find_row_map(region, all_rows()));
      if (t.maps.back())
        continue;
      if (!found.ok) {
        t.all_rows = true;
        if (!plain_program(k)) {
          t.reason = fmt::format("{}: {}", region.name, found.reason);
          return t;
        }
      }
      t.threads =
          std::max(t.threads, found.ok ? found.tiles.threads : plain_program(k)->launch.threads);
    }
    StationaryLimits limits{.threads = period() > 1 ? t.threads : 0, .shares = shares};
    if (t.all_rows)
      limits.rows = all_rows();
    for (std::size_t k = 0; k < period(); ++k) {
      if (t.maps[k])
        continue;
      if (!t.tiles[k]) {
        const std::int64_t rounds = ceil_quotient(plain_program(k)->launch.workers.value(), shares);
        t.seconds += kPlainSeconds * double(rounds) + (shares > 1 ? kClusterSeconds : 0);
        continue;
      }
      const FoundStationary found = stationary_tiles(*c_.period[k], target_, limits);
      if (!found.ok) {
        t.reason = fmt::format("{}: {}", c_.period[k]->name, found.reason);
        return t;
      }
      t.tiles[k] = found.tiles;
      t.threads = found.tiles.threads;
      t.seconds += found.tiles.seconds;
      t.load_seconds += found.tiles.load_seconds;
      if (shares == 1 && !carried_between_turns())
        t.seconds += kMemorySeconds;
      limits.rows = found.tiles.rows;
      limits.taken_registers += found.tiles.registers + kRegistersOfAnother;
      limits.taken_shared_bytes += found.tiles.shared_bytes;
    }
    t.rows = limits.rows;
    for (std::size_t k = 0; k < period(); ++k) {
      if (!t.maps[k])
        continue;
      if (!fits(*t.maps[k], block_of(t))) {
        t.reason = fmt::format("{}: a thread has too many points of it", c_.period[k]->name);
        return t;
      }
      t.seconds += row_map_seconds(*t.maps[k], block_of(t)) + (shares > 1 ? kClusterSeconds : 0);
    }
    return t;
  }

  /// Whether a product says how many rows there are.
  bool has_rows() const {
    return std::any_of(c_.period.begin(), c_.period.end(),
                       [](const Region* region) { return stationary_rows(*region) >= 0; });
  }

  std::int64_t all_rows() const {
    for (const Region* region : c_.period)
      if (const int axis = stationary_rows(*region); axis >= 0)
        return region->axes[static_cast<std::size_t>(axis)].extent.value();
    return 1;
  }

  /// The greedy program of a kernel, where its threads do not meet; null where they do.
  const KernelProgram* plain_program(std::size_t k) {
    std::optional<std::optional<KernelProgram>>& known = plain_programs_[k];
    if (!known)
      known = lowered_plainly(*c_.period[k]);
    return *known ? &**known : nullptr;
  }
  std::optional<KernelProgram> lowered_plainly(const Region& region) const {
    KernelProgram p = lower_greedily(region, target_).program;
    const bool meets = p.uses_barrier || any_statement(p.body, [](const Stmt& s) {
                         const auto* loop = get_if<For>(s);
                         const auto* use = made_by<Intrinsic>(s);
                         return get_if<Intrinsic>(s) || get_if<Acquire>(s) ||
                                get_if<InProblem>(s) || use || (loop && loop->queue);
                       });
    const bool own_memory = std::any_of(p.buffers.begin(), p.buffers.end(),
                                        [](const Buffer& b) { return b.space != Space::Argument; });
    if (meets || own_memory || p.launch.resident || !p.tensor_maps.empty() || p.product ||
        !p.launch.workers.is_constant() || p.launch.workers.value() > kMostPlainBlocks)
      return std::nullopt;
    return p;
  }

  /// What each turn's only kernel hands on to the next turn's.
  std::optional<CarriedRows> carried_between_turns() const {
    if (period() > 1)
      return std::nullopt;
    const Region& region = *c_.period[0];
    const std::vector<int> pointers = pointer_of(region);
    for (const CarriedRows& carried : carried_rows(region)) {
      const auto from =
          static_cast<std::size_t>(pointers[static_cast<std::size_t>(carried.operand)]);
      const std::size_t to =
          places(0, 0).size() - region.outputs.size() + static_cast<std::size_t>(carried.output);
      bool all = true;
      for (std::size_t t = 1; t < turns() && all; ++t)
        all = places(t, 0)[from].base == places(t - 1, 0)[to].base &&
              places(t, 0)[from].offset == places(t - 1, 0)[to].offset;
      if (all)
        return carried;
    }
    return std::nullopt;
  }

  void find_written() {
    for (std::size_t t = 0; t < turns(); ++t)
      for (std::size_t k = 0; k < period(); ++k) {
        const std::vector<MemoryRange>& all = places(t, k);
        const std::size_t outputs = c_.period[k]->outputs.size();
        for (std::size_t a = all.size() - outputs; a < all.size(); ++a)
          written_.add(all[a]);
      }
    written_.close();
  }

  /// Why a block may need what another one wrote, or write over what another one still reads.
  std::string blocks_wait_for_others() const {
    if (blocks_ == Expr(1))
      return {};
    struct Rows {
      std::int64_t stride = 0;
      ByteInterval row; ///< of row 0, from the allocation's begin
    };
    std::map<int, Rows> known; // by range of written memory
    for (std::size_t k = 0; k < period(); ++k) {
      const Region& region = *c_.period[k];
      const int axis = row_maps_[k] ? row_maps_[k]->axis : stationary_rows(region);
      const std::int64_t per_row = row_maps_[k] ? row_maps_[k]->per_row : 1;
      const auto join = [&](std::size_t argument, const std::optional<RowAccess>& access) {
        for (std::size_t t = 0; t < turns(); ++t) {
          const MemoryRange& place = places(t, k)[argument];
          const int range = written_.at(place);
          if (range < 0)
            continue;
          if (!access || access->stride <= 0)
            return false;
          const ByteInterval row{place.offset + access->row.begin, place.offset + access->row.end};
          const auto [it, fresh] = known.try_emplace(range, Rows{access->stride, row});
          Rows& rows = it->second;
          rows.row = {std::min(rows.row.begin, row.begin), std::max(rows.row.end, row.end)};
          if (rows.stride != access->stride || rows.row.end - rows.row.begin > rows.stride)
            return false;
        }
        return true;
      };
      const std::vector<int> pointers = pointer_of(region);
      const auto refusal = [&](const std::string& name) {
        return fmt::format("{}: a block may need rows of {} that another one writes", region.name,
                           name);
      };
      for (const Stage& stage : region.stages)
        for (const Load& load : stage.loads) {
          if (load.source != Source::Operand)
            continue;
          const Operand& operand = region.operands[static_cast<std::size_t>(load.number)];
          if (operand.role == Role::Scalar)
            continue;
          ElementAccess read{offset_of(region, load), stage.axes, operand.dtype, {}};
          for (const Hole& hole : load.map.holes)
            read.conditions.insert(read.conditions.end(), hole.valid.begin(), hole.valid.end());
          const auto access =
              load.indirect.empty() ? row_access(region, read, axis, per_row) : std::nullopt;
          const int pointer = pointers[static_cast<std::size_t>(load.number)];
          if (!join(static_cast<std::size_t>(pointer), access))
            return refusal(operand.name);
        }
      for (std::size_t o = 0; o < region.outputs.size(); ++o) {
        const Output& out = region.outputs[o];
        const Stage& stage = region.stages[static_cast<std::size_t>(out.stage)];
        const std::size_t pointer = places(0, k).size() - region.outputs.size() + o;
        const ElementAccess written{offset_of(out), result_axes(stage), out.dtype, {}};
        if (out.combine != Combine::Store ||
            !join(pointer, row_access(region, written, axis, per_row)))
          return refusal(fmt::format("result {}", o));
      }
    }
    return {};
  }

  /// By operand: its number among those in memory.
  static std::vector<int> pointer_of(const Region& region) {
    std::vector<int> pointers;
    int next = 0;
    for (const Operand& operand : region.operands)
      pointers.push_back(operand.role == Role::Scalar ? -1 : next++);
    return pointers;
  }

  // --- Arguments

  /// An argument of a kernel of the chain: an argument of the chain's program for all turns, or an
  /// offset in one for each.
  struct Bound {
    bool same = false; ///< in all turns
    std::vector<int> argument;
    std::vector<std::int64_t> offset; ///< elements
  };
  enum class Use : std::uint8_t { Same, Read, Written };
  using Key = std::tuple<Use, int, DType, std::int64_t>; ///< with the offset where it is the same
  struct Span {
    std::int64_t begin = INT64_MAX, end = 0, alignment = 1;
    int argument = -1;
  };

  Key key_of(std::size_t t, std::size_t k, std::size_t a) const {
    const MemoryRange& place = places(t, k)[a];
    const DType dtype = programs_[k].buffers[a].dtype;
    if (written_.at(place) >= 0)
      return {Use::Written, place.base, dtype, 0};
    for (std::size_t u = 0; u < turns(); ++u)
      if (places(u, k)[a].base != place.base || places(u, k)[a].offset != place.offset)
        return {Use::Read, place.base, dtype, 0};
    return {Use::Same, place.base, dtype, place.offset};
  }

  void declare_arguments() {
    for (std::size_t k = 0; k < period(); ++k) {
      std::size_t pointers = 0;
      for (const Buffer& b : programs_[k].buffers)
        pointers += b.space == Space::Argument;
      ensure(pointers == places(0, k).size(), "chain {}: {} of its arguments have no place",
             c_.name, c_.period[k]->name);
    }
    std::map<Key, Span> spans;
    each([&](std::size_t t, std::size_t k, std::size_t a) {
      const MemoryRange& place = places(t, k)[a];
      Span& span = spans[key_of(t, k, a)];
      span.begin = std::min(span.begin, place.offset);
      span.end = std::max(span.end, place.end());
    });
    each([&](std::size_t t, std::size_t k, std::size_t a) {
      Span& span = spans.at(key_of(t, k, a)); // where it begins follows from each of its uses
      span.alignment = std::max(span.alignment, std::gcd(places(t, k)[a].offset - span.begin,
                                                         programs_[k].buffers[a].alignment));
    });
    KernelProgram& program = splice_.program();
    for (auto& [key, span] : spans) {
      const auto& [use, base, dtype, offset] = key;
      const auto size = static_cast<std::int64_t>(size_of(dtype));
      Buffer b;
      b.name = fmt::format("{}{}",
                           use == Use::Same   ? "same"
                           : use == Use::Read ? "in"
                                              : "out",
                           program.buffers.size());
      b.dtype = dtype;
      b.argument = span.argument = static_cast<int>(program.buffers.size());
      b.elements = Expr((span.end - span.begin) / size);
      b.alignment = span.alignment;
      b.read = true;
      b.written = b.aliased = use == Use::Written;
      program.buffers.push_back(std::move(b));
      arguments_.push_back({base, span.begin});
    }
    bound_.resize(period());
    for (std::size_t k = 0; k < period(); ++k)
      bound_[k].resize(places(0, k).size());
    each([&](std::size_t t, std::size_t k, std::size_t a) {
      const Key key = key_of(t, k, a);
      const Span& span = spans.at(key);
      const auto size = static_cast<std::int64_t>(size_of(std::get<DType>(key)));
      const std::int64_t bytes = places(t, k)[a].offset - span.begin;
      if (bytes % size != 0)
        reason_ = "arguments lie between elements";
      Bound& bound = bound_[k][a];
      bound.same = std::get<Use>(key) == Use::Same;
      bound.argument.push_back(span.argument);
      bound.offset.push_back(bytes / size);
    });
    // A buffer of which some turns write the memory is treated so in all of them.
    const auto written = [&](int argument) -> bool {
      return program.buffers[static_cast<std::size_t>(argument)].written;
    };
    for (bool changed = true; std::exchange(changed, false);)
      for (const std::vector<Bound>& bounds : bound_)
        for (const Bound& bound : bounds)
          if (std::any_of(bound.argument.begin(), bound.argument.end(), written))
            for (const int argument : bound.argument)
              if (!written(argument)) {
                Buffer& b = program.buffers[static_cast<std::size_t>(argument)];
                b.written = b.aliased = changed = true;
              }
  }

  template <class F>
  void each(const F& f) const {
    for (std::size_t t = 0; t < turns(); ++t)
      for (std::size_t k = 0; k < period(); ++k)
        for (std::size_t a = 0; a < places(t, k).size(); ++a)
          f(t, k, a);
  }

  // --- The program

  LoweredChain built() {
    // Blocks take rows, and go with them through all turns.
    const auto loop_over = [&](const Expr& count, Bind bind) {
      For loop;
      loop.number = splice_.fresh_loop();
      loop.extent = loop.end = count;
      loop.begin = Expr(0);
      loop.step = Expr(1);
      loop.bind = bind;
      return loop;
    };
    const Expr blocks = blocks_ * Expr(shares_);
    For rows = loop_over(blocks, Bind::Grid), turns = loop_over(Expr(c_.turns), Bind::Serial);
    const Expr block = Expr::axis(rows.number, rows.extent);
    InTurn in_turn;
    in_turn.begins = &from_;
    in_turn.thread = thread_variable(threads_);
    in_turn.rows = floordiv(block, shares_);
    in_turn.turn = Expr::axis(turns.number, turns.extent);
    in_turn.own_share = stationary_share(shares_);
    in_turn.share = floormod(block, shares_);
    Block before;
    for (std::size_t k = 0; k < period(); ++k) {
      Block body = add_kernel(k, before, in_turn);
      turns.body.push_back(InProblem{static_cast<int>(k), in_turn.turn, std::move(body)});
      if (shares_ > 1)
        turns.body.push_back(Intrinsic{.id = IntrinsicId::GridBarrier, .numbers = {shares_}});
      else
        turns.body.push_back(Barrier{});
    }
    in_turn(before);
    before.push_back(std::move(turns));
    rows.body = std::move(before);
    rows.keeps_invariants = true; // factors that registers and shared memory hold
    KernelProgram& program = splice_.program();
    program.body.push_back(std::move(rows));
    program.uses_barrier = true;
    std::erase_if(program.dims, [&](const Expr& dim) { return is_own(dim); });
    program.launch.threads = threads_;
    program.launch.workers = blocks;
    program.launch.blocks_per_core = 1;
    if (!reason_.empty())
      return refused(reason_);
    const std::size_t words = program.scalars.size() + arguments_.size() + 4;
    if (target_.parameter_bytes > 0 &&
        static_cast<std::int64_t>(words) * 8 > target_.parameter_bytes) {
      LoweredChain lowered = refused("more arguments than a launch can have");
      lowered.has_too_many_arguments = true;
      return lowered;
    }
    verify(program);
    LoweredChain lowered;
    lowered.ok = true;
    lowered.program = std::move(program);
    lowered.arguments = std::move(arguments_);
    lowered.seconds = seconds_;
    lowered.launch_seconds = launch_seconds() * static_cast<double>(c_.turns);
    return lowered;
  }

  /// Adds the group of a kernel's turns; gives what a turn does, and appends what all turns need to
  /// `before`.
  Block add_kernel(std::size_t k, Block& before, InTurn in_turn) {
    const KernelProgram& own = programs_[k];
    KernelProgram& program = splice_.program();
    ProblemGroup group;
    group.begin.resize(turns() + 1);
    std::iota(group.begin.begin(), group.begin.end(), std::int64_t{0});
    group.item = Expr::symbol("%item1", 0, 1);
    std::vector<int> buffers;
    std::set<int> varying;
    for (std::size_t a = 0; a < bound_[k].size(); ++a) {
      const Bound& bound = bound_[k][a];
      if (bound.same) {
        buffers.push_back(bound.argument[0]);
        continue;
      }
      const Buffer& first = program.buffers[static_cast<std::size_t>(bound.argument[0])];
      Buffer b = own.buffers[a];
      b.space = Space::Problem;
      b.argument = -1;
      b.read = b.read || first.written;
      b.written = b.aliased = first.written;
      b.elements = first.elements;
      for (const int argument : bound.argument)
        b.alignment =
            std::gcd(b.alignment, program.buffers[static_cast<std::size_t>(argument)].alignment);
      const int number = static_cast<int>(program.buffers.size());
      buffers.push_back(number);
      varying.insert(number);
      group.buffers.push_back(number);
      group.arguments.push_back(bound.argument);
      const auto [least, most] = std::minmax_element(bound.offset.begin(), bound.offset.end());
      if (*least == *most) {
        from_.emplace(number, Expr(*least));
      } else {
        const std::string name = fmt::format("%from{}_{}_{}", number, *least, *most);
        from_.emplace(number, Expr::symbol(name, *least, *most));
        group.sizes.push_back(from_.at(number));
        group.values.push_back(bound.offset);
      }
      program.buffers.push_back(std::move(b));
    }
    std::vector<int> scalars;
    for (const DType dtype : own.scalars) {
      scalars.push_back(static_cast<int>(program.scalars.size()));
      program.scalars.push_back(dtype);
    }
    program.groups.push_back(std::move(group));
    in_turn.own_thread = thread_variable(own.launch.threads);
    Block body = splice_kernel(own, buffers, scalars);
    if (plain_[k]) {
      each_statement(body, [&](Stmt& s) { // there is one block, or cluster
        if (For* loop = get_if<For>(s); loop && loop->bind == Bind::Grid) {
          loop->bind = Bind::Serial;
          loop->begin = loop->begin + in_turn.share * loop->step;
          loop->step = loop->step * Expr(shares_);
        }
      });
      in_turn(body);
      if (own.launch.threads == threads_)
        return body;
      Block some;
      some.push_back(
          If{{{in_turn.thread, Expr(0), Expr(own.launch.threads)}}, std::move(body), {}});
      return some;
    }
    body = split(std::move(body), varying, before);
    if (!reason_.empty())
      return {};
    For loop = std::move(*get_if<For>(body.back()));
    body.pop_back();
    body.insert(body.end(), std::make_move_iterator(loop.body.begin()),
                std::make_move_iterator(loop.body.end()));
    in_turn.own_rows = Expr::axis(loop.number, loop.extent);
    in_turn(body);
    return body;
  }

  Block splice_kernel(const KernelProgram& own, const std::vector<int>& buffers,
                      const std::vector<int>& scalars) {
    std::vector<Buffer>& all = splice_.program().buffers;
    const std::vector<Buffer> declared = all; // what splicing says of alignment is of each turn
    Block body = splice_.add(own, buffers, scalars);
    std::copy(declared.begin(), declared.end(), all.begin());
    return body;
  }

  /// Statements before the last one that touch nothing of a turn's own go to `before`.
  Block split(Block body, const std::set<int>& varying, Block& before) {
    struct Needs : FieldVisitor<Needs> {
      const std::set<int>* varying = nullptr;
      const std::set<int>* values = nullptr;
      bool found = false;
      void visit(const Expr& e) {
        for (const Expr& v : variables_of(e))
          if (auto id = value_of(v))
            found = found || values->contains(*id);
      }
      void id(IdKind kind, int& number) {
        found = found || (kind == IdKind::Buffer && varying->contains(number)) ||
                (kind == IdKind::Value && values->contains(number));
      }
    };
    std::set<int> of_turn;
    Block rest;
    for (std::size_t i = 0; i < body.size(); ++i) {
      Needs needs;
      needs.varying = &varying;
      needs.values = &of_turn;
      needs(body[i]);
      if (i + 1 == body.size()) {
        rest.push_back(std::move(body[i]));
      } else if (!needs.found) {
        before.push_back(std::move(body[i]));
      } else if (const auto* let = get_if<Let>(body[i])) {
        of_turn.insert(let->target);
        rest.push_back(std::move(body[i]));
      } else {
        reason_ = "what a kernel does before its loop is another thing in each turn";
        return {};
      }
    }
    return rest;
  }

  const ChainProblem& c_;
  const Target& target_;
  const bool all_rows_;
  bool rows_mix_ = false;
  Splice splice_;
  std::vector<KernelProgram> programs_;
  std::vector<std::optional<std::optional<KernelProgram>>> plain_programs_; ///< that are known
  std::vector<bool> plain_;                     ///< by kernel: it is no product, and has all rows
  std::vector<std::optional<RowMap>> row_maps_; ///< by kernel
  Expr blocks_;                                 ///< or clusters
  std::int64_t shares_ = 1;                     ///< blocks of a cluster
  int threads_ = 0;
  double seconds_ = 0;
  MemoryRanges written_;
  std::vector<std::vector<Bound>> bound_; ///< by kernel, by argument
  std::map<int, Expr> from_; ///< by buffer of a turn: elements before it in its argument
  std::vector<ChainArgument> arguments_;
  std::string reason_;
};

} // namespace

LoweredChain lower_chain(const ChainProblem& problem, const Target& target) {
  ensure(!problem.period.empty() && problem.turns > 0 &&
             problem.places.size() ==
                 problem.period.size() * static_cast<std::size_t>(problem.turns),
         "chain {}: {} launches for {} turns of {} kernels", problem.name, problem.places.size(),
         problem.turns, problem.period.size());
  Chaining chaining(problem, target, false);
  LoweredChain lowered = chaining.run();
  if (!chaining.rows_mix())
    return lowered;
  lowered = Chaining(problem, target, true).run();
  lowered.rows_mix = true;
  return lowered;
}

} // namespace egret::kernel

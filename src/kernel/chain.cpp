#include "kernel/chain.h"

#include "kernel/analysis.h"
#include "kernel/gpu_stationary.h"
#include "kernel/program_fields.h"
#include "kernel/splice.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace egret::kernel {

namespace {

bool shares_memory(const ChainPlace& a, const ChainPlace& b) {
  return a.base == b.base && a.offset < b.end() && b.offset < a.end();
}

/// Ranges of memory that touch each other, as one, by where they end.
class MemoryRanges {
public:
  void add(const ChainPlace& place) { all_.push_back(place); }
  void close() {
    std::sort(all_.begin(), all_.end(), [](const ChainPlace& a, const ChainPlace& b) {
      return std::tie(a.base, a.offset) < std::tie(b.base, b.offset);
    });
    std::vector<ChainPlace> joined;
    for (const ChainPlace& p : all_)
      if (!joined.empty() && shares_memory(joined.back(), p))
        joined.back().bytes = std::max(joined.back().end(), p.end()) - joined.back().offset;
      else
        joined.push_back(p);
    all_ = std::move(joined);
  }
  /// Number of the first range that shares memory with the place; -1: none does.
  int at(const ChainPlace& place) const {
    const auto first = std::partition_point(all_.begin(), all_.end(), [&](const ChainPlace& range) {
      return std::pair(range.base, range.end()) <= std::pair(place.base, place.offset);
    });
    return first != all_.end() && shares_memory(*first, place)
               ? static_cast<int>(first - all_.begin())
               : -1;
  }

private:
  std::vector<ChainPlace> all_;
};

struct Interval {
  std::int64_t begin = 0, end = 0; ///< bytes
};

/// What a region touches of an argument in row 0, and the bytes from one row to the next; nothing
/// where rows are not apart so.
struct RowAccess {
  std::int64_t stride = 0;
  Interval row;
};
std::optional<RowAccess> row_access(const Expr& offset, const std::vector<int>& axes, int rows,
                                    const Region& region, DType dtype) {
  const auto at = std::find(axes.begin(), axes.end(), rows);
  if (at == axes.end())
    return std::nullopt;
  const Expr variable = Expr::axis(static_cast<int>(at - axes.begin()),
                                   region.axes[static_cast<std::size_t>(rows)].extent);
  const auto with = [&](const Expr& value) {
    return substitute(offset, [&](const Expr& v) {
      return v == variable ? std::optional<Expr>(value) : std::nullopt;
    });
  };
  const Expr rest = with(Expr(0)), stride = offset - rest;
  if (!(stride == variable * (with(Expr(1)) - rest)) || !(with(Expr(1)) - rest).is_constant() ||
      rest.lower() == INT64_MIN || rest.upper() == INT64_MAX)
    return std::nullopt;
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  return RowAccess{(with(Expr(1)) - rest).value() * size,
                   {rest.lower() * size, (rest.upper() + 1) * size}};
}

/// What a kernel does, for a turn: the rows are those of the chain's loop, and buffers begin where
/// they do in that turn.
struct InTurn : FieldVisitor<InTurn> {
  const std::map<int, Expr>* begins = nullptr; ///< by buffer
  Expr own_rows, rows, own_thread, thread, turn;
  void visit(Expr& e) const {
    e = substitute(e, [&](const Expr& v) -> std::optional<Expr> {
      if (v == own_rows)
        return rows;
      if (v == own_thread)
        return thread;
      return v == stationary_turn() ? std::optional(turn) : std::nullopt;
    });
  }
  void visit(Address& address) const {
    visit(address.index);
    if (auto it = begins->find(address.buffer); it != begins->end())
      address.index = address.index + it->second;
  }
};

/// Of a kernel whose threads do not meet, about: from memory to memory and a few functions.
constexpr double kPlainSeconds = 0.4e-6;
constexpr std::int64_t kAnyRows = -1; ///< in one block

class Chaining {
public:
  Chaining(const ChainProblem& problem, const Target& target)
      : c_(problem), target_(target), splice_(problem.name) {}

  LoweredChain run() {
    if (auto why = lower_steps(); !why.empty())
      return refused(why);
    find_written();
    if (auto why = blocks_wait_for_others(); !why.empty())
      return refused(why);
    declare_arguments();
    if (!reason_.empty())
      return refused(reason_);
    return built();
  }

private:
  static LoweredChain refused(std::string why) {
    LoweredChain lowered;
    lowered.reason = std::move(why);
    return lowered;
  }
  std::size_t period() const { return c_.period.size(); }
  const std::vector<ChainPlace>& places(std::size_t turn, std::size_t kernel) const {
    return c_.places[turn * period() + kernel];
  }
  std::size_t turns() const { return static_cast<std::size_t>(c_.turns); }

  /// Programs of one turn, with blocks of the same threads and the same rows. Kernels that are no
  /// products run as they would alone, where one block has all rows.
  std::string lower_steps() {
    std::vector<std::optional<StationaryTiles>> tiles;
    int threads = 0;
    bool one_block = false;
    for (const Region* region : c_.period) {
      const FoundStationary found = stationary_tiles(*region, target_);
      tiles.push_back(found.ok ? std::optional(found.tiles) : std::nullopt);
      programs_.emplace_back();
      if (found.ok) {
        threads = std::max(threads, found.tiles.threads);
        continue;
      }
      one_block = true;
      std::optional<KernelProgram> plain = plain_program(*region);
      if (!plain)
        return fmt::format("{}: {}", region->name, found.reason);
      threads = std::max(threads, plain->launch.threads);
      programs_.back() = std::move(*plain);
    }
    StationaryLimits limits{.threads = period() > 1 ? threads : 0,
                            .rows = one_block ? kAnyRows : 0};
    for (std::size_t k = 0; k < period(); ++k) {
      const Region& region = *c_.period[k];
      plain_.push_back(!tiles[k]);
      if (plain_.back()) {
        seconds_ += kPlainSeconds;
        continue;
      }
      if (limits.rows == kAnyRows) {
        const int axis = stationary_rows(region);
        limits.rows = axis < 0 ? 1 : region.axes[static_cast<std::size_t>(axis)].extent.value();
      }
      const FoundStationary found = stationary_tiles(region, target_, limits);
      if (!found.ok)
        return fmt::format("{}: {}", region.name, found.reason);
      limits.rows = found.tiles.rows;
      limits.taken_registers += found.tiles.registers;
      limits.taken_shared_bytes += found.tiles.shared_bytes;
      const std::optional<CarriedRows> carried = carried_between_turns();
      Lowered lowered =
          stationary_program(region, target_, found.tiles, carried ? &*carried : nullptr);
      if (!lowered.ok)
        return fmt::format("{}: {}", region.name, lowered.reason);
      seconds_ += found.tiles.seconds;
      programs_[k] = std::move(lowered.program);
    }
    threads_ = threads;
    blocks_ = programs_[0].launch.workers;
    for (const KernelProgram& p : programs_)
      if (!(p.launch.workers == blocks_) || (one_block && !(blocks_ == Expr(1))) ||
          std::any_of(p.dims.begin(), p.dims.end(),
                      [](const Expr& d) { return !(d == stationary_turn()); }))
        return "its kernels have other blocks";
    return {};
  }

  /// The greedy program of a region, where its threads do not meet.
  std::optional<KernelProgram> plain_program(const Region& region) const {
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
        !(p.launch.workers == Expr(1)))
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
        const std::vector<ChainPlace>& all = places(t, k);
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
      Interval row; ///< of row 0, from the allocation's begin
    };
    std::map<int, Rows> known; // by range of written memory
    for (std::size_t k = 0; k < period(); ++k) {
      const Region& region = *c_.period[k];
      const int axis = stationary_rows(region);
      const auto join = [&](std::size_t argument, const std::optional<RowAccess>& access) {
        for (std::size_t t = 0; t < turns(); ++t) {
          const ChainPlace& place = places(t, k)[argument];
          const int range = written_.at(place);
          if (range < 0)
            continue;
          if (!access || access->stride <= 0)
            return false;
          const Interval row{place.offset + access->row.begin, place.offset + access->row.end};
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
          const auto access =
              load.indirect.empty()
                  ? row_access(offset_of(region, load), stage.axes, axis, region, operand.dtype)
                  : std::nullopt;
          const int pointer = pointers[static_cast<std::size_t>(load.number)];
          if (!join(static_cast<std::size_t>(pointer), access))
            return refusal(operand.name);
        }
      for (std::size_t o = 0; o < region.outputs.size(); ++o) {
        const Output& out = region.outputs[o];
        const Stage& stage = region.stages[static_cast<std::size_t>(out.stage)];
        const std::size_t pointer = places(0, k).size() - region.outputs.size() + o;
        if (out.combine != Combine::Store ||
            !join(pointer, row_access(offset_of(out), result_axes(stage), axis, region, out.dtype)))
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
    const ChainPlace& place = places(t, k)[a];
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
      const ChainPlace& place = places(t, k)[a];
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
    For rows = loop_over(blocks_, Bind::Grid), turns = loop_over(Expr(c_.turns), Bind::Serial);
    const Expr turn = Expr::axis(turns.number, turns.extent);
    Block before;
    for (std::size_t k = 0; k < period(); ++k) {
      Block body = add_kernel(k, before, Expr::axis(rows.number, rows.extent), turn);
      turns.body.push_back(InProblem{static_cast<int>(k), turn, std::move(body)});
      turns.body.push_back(Barrier{});
    }
    rows.body.push_back(std::move(turns));
    KernelProgram& program = splice_.program();
    program.body = std::move(before);
    program.body.push_back(std::move(rows));
    program.uses_barrier = true;
    std::erase(program.dims, stationary_turn());
    program.launch.threads = threads_;
    program.launch.workers = blocks_;
    program.launch.blocks_per_core = 1;
    if (!reason_.empty())
      return refused(reason_);
    const std::size_t words = program.scalars.size() + arguments_.size() + 4;
    if (target_.parameter_bytes > 0 &&
        static_cast<std::int64_t>(words) * 8 > target_.parameter_bytes)
      return refused("more arguments than a launch can have");
    verify(program);
    return {true, std::move(program), std::move(arguments_), seconds_, {}};
  }

  /// Adds the group of a kernel's turns; gives what a turn does, and appends what all turns need to
  /// `before`.
  Block add_kernel(std::size_t k, Block& before, const Expr& rows, const Expr& turn) {
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
    InTurn in_turn;
    in_turn.begins = &from_;
    in_turn.own_thread = thread_variable(own.launch.threads);
    in_turn.thread = thread_variable(threads_);
    in_turn.rows = rows;
    in_turn.turn = turn;
    Block body = splice_kernel(own, buffers, scalars);
    if (plain_[k]) {
      each_statement(body, [](Stmt& s) { // there is one block
        if (For* loop = get_if<For>(s); loop && loop->bind == Bind::Grid)
          loop->bind = Bind::Serial;
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
  Splice splice_;
  std::vector<KernelProgram> programs_;
  std::vector<bool> plain_; ///< by kernel: it is no product
  Expr blocks_;
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
  return Chaining(problem, target).run();
}

} // namespace egret::kernel

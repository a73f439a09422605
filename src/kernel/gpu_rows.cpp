// Reductions over contiguous axes on a GPU, one or several in a chain: a group of threads does a
// row (some lanes of a warp, a warp, or a block). What the passes read more than once is kept in
// registers or in shared memory, so that memory is read once. Of long rows, which leave no room for
// a second block on the same multiprocessor, the next one is fetched while one is worked on. Few
// long rows are cut into pieces for several blocks, whose results are combined in order: of one
// pass by the last block, of several by every block behind a barrier of the grid.
#include "kernel/accumulate.h"
#include "kernel/analysis.h"
#include "kernel/families.h"
#include "kernel/gpu_carried.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_row_facts.h"
#include "kernel/gpu_row_space.h"
#include "kernel/gpu_row_time.h"
#include "kernel/knobs.h"
#include "kernel/label_terms.h"
#include "kernel/pass_states.h"
#include "kernel/passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace egret::kernel {

namespace {

class GpuRows {
public:
  GpuRows(const Region& region, const RowFacts& facts, const Schedule& schedule,
          const Target& target)
      : r_(region), f_(facts), p_(facts.passes), schedule_(schedule), b_(region.name),
        e_(b_, region), threads_(int(schedule.knob("threads", 256))),
        group_(int(schedule.knob("group", threads_))), t_(thread_variable(threads_)) {
    std::int64_t bytes = schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes;
    lanes_ = gpu_lanes(region, f_.inner, bytes);
    if (schedule.knob("shift", 0) != 0) {
      shifted_ = shifted_rows(region, facts, target);
      lanes_ = shifted_.lanes;
    }
    arithmetic_ = arithmetic_of(target);
    e_.load_policy = schedule.load_policy;
    e_.means = p_.means();
    keep_ = RowKeep(schedule.knob("keep", 0));
    run_ = schedule.knob("run", 0);
    roll_ = keep_ == RowKeep::Shared ? schedule.knob("roll", 0) : 0;
    vectors_ = f_.vectors(region, lanes_, shifted_.lanes > 1);
    pieces_ = schedule.split_reduce;
    mine_ = group_ == threads_ ? t_ : floormod(t_, Expr(group_));
    for (int a : p_.parallel)
      parallel_.push_back(r_.axes[a].extent);
    rows_ = points_of(r_, p_.parallel);
    for (int a : p_.reduced)
      if (a != f_.inner)
        order_.push_back(a);
    order_.push_back(f_.inner);
  }

  KernelProgram run() {
    Launch launch;
    launch.threads = threads_;
    launch.blocks_per_core = schedule_.blocks_per_core;
    launch.least_shared = schedule_.least_shared;
    launch.workers = Expr(1);
    if (is_empty(r_, p_.parallel))
      return b_.finish(launch);
    if (run_ > 0) {
      runs();
      launch.workers = ceildiv(rows_, Expr(run_));
      return b_.finish(launch);
    }
    if (pieces_ > 1 && p_.waits()) {
      passes_in_pieces();
      launch.resident = true;
      launch.workers = rows_ * Expr(pieces_);
      return b_.finish(launch);
    }
    const std::int64_t together = threads_ / group_;
    Expr groups = ceildiv(rows_, Expr(together));
    if (pieces_ > 1) {
      make_partials(0);
      arrivals_ = b_.counter("arrivals", rows_.value());
      launch.workers = rows_ * Expr(pieces_);
    } else {
      launch.workers = max(Expr(1), groups);
    }
    launch.resident = schedule_.knob("resident", 0) != 0;
    int counter = -1;
    if (schedule_.order == WorkOrder::Drawn) {
      counter = b_.counter("next", 2);
      launch.resident = true;
    }
    if (keep_ == RowKeep::Shared)
      make_stash(1);
    b_.grid_loop(
        launch.workers,
        [&](const Expr& item) {
          if (pieces_ > 1) {
            only_pass(floordiv(item, Expr(pieces_)), floormod(item, Expr(pieces_)));
            return;
          }
          Expr row = together == 1 ? item : item * Expr(together) + floordiv(t_, Expr(group_));
          Point p = row_at(row);
          if (together > 1)
            p.mask.push_back({row, Expr(0), rows_});
          whole(p);
        },
        counter);
    return b_.finish(launch);
  }

private:
  Point row_at(const Expr& row) const {
    Point p;
    p.at.resize(r_.axes.size());
    std::vector<Expr> at = unflatten(row, parallel_);
    for (std::size_t i = 0; i < p_.parallel.size(); ++i)
      p.at[p_.parallel[i]] = at[i];
    return p;
  }

  Accumulator accumulator(int stage, int yield) {
    return Accumulator(e_, stage, yield, arithmetic_, points_of(r_, p_.reduced));
  }

  /// A vector of a row; `own` says which of its lanes are the row's.
  struct Spot {
    Point point;
    std::vector<Guard> own;
    std::int64_t turn = 0; ///< of the thread, where turns are one after the other in the code
  };
  Spot spot(const Point& row, const Expr& vector, const Expr& end) const {
    std::vector<Expr> extents;
    for (int a : order_)
      extents.push_back(a == f_.inner ? ceildiv(r_.axes[a].extent, Expr(lanes_))
                                      : r_.axes[a].extent);
    std::vector<Expr> at = unflatten(vector, extents);
    Spot s{row, {}, 0};
    s.point.lanes = lanes_;
    for (std::size_t i = 0; i < order_.size(); ++i)
      s.point.at[order_[i]] = at[i];
    Expr& inner = s.point.at[f_.inner];
    inner = inner * Expr(lanes_) + (lanes_ > 1 ? lane_variable(lanes_) : Expr(0));
    if (shifted_.lanes > 1) {
      const Expr start = substitute(shifted_.start, [&](const Expr& v) -> std::optional<Expr> {
        return v.is_axis() ? std::optional(row.at[v.axis_number()]) : std::nullopt;
      });
      inner = inner - floormod(start, Expr(lanes_));
    }
    s.own.push_back({vector, Expr(0), end});
    const Expr& extent = r_.axes[f_.inner].extent;
    if (shifted_.lanes > 1 ||
        extent.divisor() % lanes_ != 0) // else all lanes of a vector are there
      s.own.push_back({inner, Expr(0), extent});
    s.own = unproved(std::move(s.own));
    s.point.mask.insert(s.point.mask.end(), s.own.begin(), s.own.end());
    return s;
  }

  Expr place_of(const Point& p) const {
    Expr place(0);
    for (int a : p_.reduced)
      place = place * r_.axes[a].extent + p.at[a];
    return place;
  }

  // --- A row by one group

  void whole(const Point& row) {
    for (int pass = 0; pass < p_.count; ++pass) {
      if (pass > 0 && keep_ == RowKeep::Shared)
        for (int memory : stash_memory_)
          b_.forget_loads(memory);
      finish(pass, row, run_pass(pass, row));
    }
    point_outputs(row);
  }

  // --- Neighbouring rows by one block, each fetched while the one before is worked on

  void runs() {
    make_stash(2);
    const Expr items = ceildiv(rows_, Expr(run_));
    if (p_.carries())
      carried_.emplace(e_, p_, arithmetic_,
                       CarriedSums::Layout{t_, threads_, lanes_, turns(), items.value()});
    b_.grid_loop(items, [&](const Expr& item) {
      const Expr first = item * Expr(run_);
      const Expr count = min(Expr(run_), rows_ - first);
      if (carried_)
        carried_->begin();
      fetch(first, Expr(0));
      b_.commit_copies();
      b_.loop(Expr(0), count, Expr(1), Expr(run_), Bind::Serial, [&](const Expr& i) {
        b_.when({{i + Expr(1), Expr(0), count}},
                [&] { fetch(first + i + Expr(1), floormod(i + Expr(1), Expr(2))); });
        b_.commit_copies(); // an empty group behind the last row, so that the count stays the same
        b_.wait_copies(1);
        for (int memory : stash_memory_)
          b_.forget_loads(memory);
        slot_ = floormod(i, Expr(2));
        whole(row_at(first + i));
      });
      if (carried_)
        carried_->finish(
            item, [&](std::int64_t turn) { return columns_of(turn); }, schedule_.store_policy);
    });
  }

  /// The columns of a thread's vector, of no row.
  Point columns_of(std::int64_t turn) const {
    Point none;
    none.at.resize(r_.axes.size());
    return spot(none, Expr(turn * group_) + mine_, vectors_).point;
  }

  /// Begins to bring what the row's passes read to a half of the stash.
  void fetch(const Expr& row, const Expr& slot) {
    const Point p = row_at(row);
    for (std::int64_t turn = 0; turn < turns(); ++turn) {
      const Expr vector = Expr(turn * group_) + mine_;
      const Point first = first_lane(spot(p, vector, vectors_).point);
      for (std::size_t i = 0; i < stash_.size(); ++i)
        if (auto offset = element_at(r_, *stash_[i].stage, *stash_[i].load, first))
          b_.copy_async(stash_memory_[i], stash_place(slot, Expr(turn)),
                        e_.operand_buffer(stash_[i].load->number), *offset, lanes_,
                        {{vector, Expr(0), vectors_}}); // whole vectors: lanes divide the row
    }
  }

  Point first_lane(Point p) const {
    Expr& inner = p.at[f_.inner];
    if (lanes_ > 1)
      inner = inner - lane_variable(lanes_);
    return p;
  }

  /// One pass over the row. Gives the states of this thread.
  Running run_pass(int pass, const Point& row) {
    if (keep_ == RowKeep::Nowhere) {
      Running states = start(pass);
      if (shifted_.lanes == 1)
        return rolled_pass(pass, row, Expr(0), vectors_, std::move(states));
      // The first vector and the last two may reach beyond the row; others need no tests.
      const RunningVariables running(b_, states);
      b_.when({{mine_, Expr(0), Expr(3)}}, [&] {
        Running next = running.read();
        step(pass, edges(row), next);
        running.write(next);
      });
      return rolled_pass(pass, row, Expr(1), vectors_ - Expr(2), running.read());
    }
    if (roll_ > 0 && (pass > 0 || run_ > 0))
      return rolled_pass(pass, row, Expr(0), vectors_, start(pass));
    Running states = start(pass);
    straight(pass, row, Expr(0), vectors_, 0, turns(), states);
    return states;
  }

  /// Of a shifted row, the vector at its ends for each of the first three threads.
  std::vector<Spot> edges(const Point& row) const {
    const Expr number = min(mine_, Expr(2));
    // 0, V - 2, V - 1 are 0 + (V - 2) min(number, 1) + max(number - 1, 0).
    const Expr vector =
        (vectors_ - Expr(2)) * min(number, Expr(1)) + max(number - Expr(1), Expr(0));
    return {spot(row, vector, vectors_)};
  }

  /// Turns [from, to) of the thread over vectors [begin, end), one after the other in the code.
  void straight(int pass, const Point& row, const Expr& begin, const Expr& end, std::int64_t from,
                std::int64_t to, Running& states) {
    std::vector<Spot> spots;
    for (std::int64_t j = from; j < to; ++j) {
      spots.push_back(spot(row, begin + Expr(j * group_) + mine_, end));
      spots.back().turn = j;
      if (keep_ == RowKeep::Shared || run_ > 0)
        stash(pass, spots.back(), Expr(j));
    }
    constexpr std::size_t kBatch = 4; // of points whose outputs are stored together
    for (std::size_t j = 0; j < spots.size(); j += kBatch)
      step(pass, std::span(spots).subspan(j, std::min(kBatch, spots.size() - j)), states);
  }

  /// Turns in a loop, several at a time. Where their number is known, those that may leave the
  /// range stand behind it, so that the others need no tests.
  Running rolled_pass(int pass, const Point& row, const Expr& begin, const Expr& end,
                      Running states) {
    const int copies = int(roll_ > 0 ? roll_ : schedule_.knob("copies", 4));
    const std::int64_t span = std::int64_t(group_) * copies;
    const auto count = (end - begin).constant();
    const Expr whole = count ? Expr(*count / span) : ceildiv(end - begin, Expr(span));
    const Expr most = count ? whole : ceildiv(vectors_, Expr(span));
    const RunningVariables running(b_, states);
    b_.loop(Expr(0), whole, Expr(1), max(most, Expr(1)), Bind::Serial, [&](const Expr& turn) {
      std::vector<Spot> spots;
      for (int c = 0; c < copies; ++c) {
        spots.push_back(
            spot(row, begin + turn * Expr(span) + Expr(std::int64_t(c) * group_) + mine_, end));
        if (roll_ > 0)
          stash(pass, spots.back(), turn * Expr(copies) + Expr(c));
      }
      Running next = running.read();
      step(pass, spots, next);
      running.write(next);
    });
    states = running.read();
    if (count)
      straight(pass, row, begin, end, *count / span * copies, (*count + group_ - 1) / group_,
               states);
    return states;
  }

  PassStates states_of(int pass) {
    return {e_, p_, pass, arithmetic_, points_of(r_, p_.reduced), lanes_, 1};
  }
  Running start(int pass) { return states_of(pass).start(); }

  void step(int pass, std::span<const Spot> spots, Running& states) {
    std::vector<Value> values;
    PassStates sums = states_of(pass);
    if (keep_ == RowKeep::Nowhere && spots.size() > 1)
      load_ahead(pass, spots);
    const auto add = [&](std::span<const Spot> some) {
      std::vector<PassStates::Spot> places;
      for (const Spot& s : some)
        places.push_back({&s.point, place_of(s.point), s.own});
      sums.add(states, places, false);
    };
    if (sums.adds_together())
      add(spots);
    for (const Spot& s : spots) {
      if (!sums.adds_together())
        add(std::span(&s, 1));
      if (carried_)
        carried_->add(pass, s.turn, s.point);
      for (int o : p_.outputs[pass])
        values.push_back(e_.result(r_.outputs[o].stage, r_.outputs[o].component, s.point));
    }
    // Everything is read before anything is written: an output may lie in the memory of an operand.
    auto value = values.begin();
    for (const Spot& s : spots)
      for (int o : p_.outputs[pass])
        e_.store(o, s.point, *value++, schedule_.store_policy);
  }

  /// What a pass reads at several points, before anything is made of it: loads behind tests do not
  /// move by themselves, and each would be awaited before the next one begins.
  void load_ahead(int pass, std::span<const Spot> spots) {
    const std::vector<bool> read = operands_of(pass);
    std::vector<RowLoad> loads = row_loads(r_, f_);
    std::erase_if(loads, [&](const RowLoad& l) { return !read[std::size_t(l.load->number)]; });
    constexpr std::size_t kMostBytes = 256; // of a thread: a quarter of its registers
    std::size_t bytes = 0;
    for (const RowLoad& l : loads)
      bytes += spots.size() * std::size_t(lanes_) * size_of(r_.operands[l.load->number].dtype);
    if (bytes > kMostBytes)
      return;
    for (const Spot& s : spots)
      for (const RowLoad& l : loads)
        if (auto offset = element_at(r_, *l.stage, *l.load, s.point))
          e_.provide_load(*l.stage, *l.load, s.point,
                          b_.load(e_.operand_buffer(l.load->number), *offset, lanes_, s.point.mask,
                                  schedule_.load_policy));
  }

  /// What a pass reads for what it makes at the points of a row.
  std::vector<bool> operands_of(int pass) const {
    std::vector<bool> made(r_.stages.size()), read(r_.operands.size());
    for (int stage : p_.reductions[pass])
      made[std::size_t(stage)] = true;
    for (int o : p_.outputs[pass])
      made[std::size_t(r_.outputs[o].stage)] = true;
    for (std::size_t s = r_.stages.size(); s-- > 0;)
      for (const Load& load : r_.stages[s].loads)
        if (made[s] && load.source == Source::Operand)
          read[std::size_t(load.number)] = true;
        else if (made[s] && r_.stages[load.number].kind == StageKind::Map)
          made[std::size_t(load.number)] = true;
    return read;
  }

  /// The results of a pass, at hand in every thread of the group.
  void finish(int pass, const Point& row, const Running& states) {
    PassStates sums = states_of(pass);
    sums.provide(row, sums.across_threads(sums.across_lanes(states), group_));
  }

  void point_outputs(const Point& row) { store_once(e_, p_.point_outputs, row, mine_); }

  // --- Kept in shared memory

  /// Every thread finds again what it has put there itself, so no barrier is needed.
  void make_stash(int slots) {
    stash_ = row_loads(r_, f_, run_ > 0 ? lanes_ : 0);
    for (const RowLoad& kept : stash_)
      stash_memory_.push_back(b_.shared(fmt::format("row{}", stash_memory_.size()),
                                        r_.operands[kept.load->number].dtype,
                                        slots * turns() * threads_ * lanes_));
  }

  /// Of a thread along a row.
  std::int64_t turns() const { return ceildiv(vectors_, Expr(group_)).value(); }

  Expr stash_place(const Expr& slot, const Expr& turn) const {
    return (slot * Expr(turns() * threads_) + turn * Expr(threads_) + t_) * Expr(lanes_);
  }

  void stash(int pass, const Spot& s, const Expr& turn) {
    for (std::size_t i = 0; i < stash_.size(); ++i) {
      const RowLoad& kept = stash_[i];
      auto offset = element_at(r_, *kept.stage, *kept.load, s.point);
      if (!offset)
        continue;
      const Expr place = stash_place(slot_, turn) + (lanes_ > 1 ? lane_variable(lanes_) : Expr(0));
      if (pass == 0 && run_ == 0) {
        ValueId v = b_.load(e_.operand_buffer(kept.load->number), *offset, lanes_, s.point.mask,
                            schedule_.load_policy);
        b_.store(stash_memory_[i], place, v);
        e_.provide_load(*kept.stage, *kept.load, s.point, v);
      } else {
        e_.provide_load(*kept.stage, *kept.load, s.point, b_.load(stash_memory_[i], place, lanes_));
      }
    }
  }

  // --- Pieces

  void make_partials(int pass) {
    partials_.emplace_back();
    for (int stage : p_.reductions[pass]) {
      partials_.back().emplace_back();
      for (std::size_t y = 0; y < r_.stages[stage].yields.size(); ++y)
        partials_.back().back().push_back(
            accumulator(stage, int(y)).workspaces(rows_ * Expr(pieces_)));
    }
  }

  void only_pass(const Expr& flat_row, const Expr& number) {
    const Point row = row_at(flat_row);
    piece(0, row, flat_row, number);
    b_.last_arriver(arrivals_, flat_row, Expr(pieces_), [&] {
      recall(0, row, flat_row);
      point_outputs(row);
    });
  }

  /// All blocks do a pass before any begins the next.
  void passes_in_pieces() {
    for (int pass = 0; pass < p_.count; ++pass)
      make_partials(pass);
    passes_by_slices(b_, p_.count, rows_, pieces_, !p_.point_outputs.empty(),
                     [&](int pass, const Expr& flat_row, const Expr& number) {
                       const Point row = row_at(flat_row);
                       for (int earlier = 0; earlier < pass; ++earlier)
                         recall(earlier, row, flat_row);
                       pass == p_.count ? point_outputs(row) : piece(pass, row, flat_row, number);
                     });
  }

  /// A pass over a piece of a row; its states go to memory.
  void piece(int pass, const Point& row, const Expr& flat_row, const Expr& number) {
    const std::int64_t each = ceildiv(vectors_, Expr(pieces_)).value();
    Expr begin = number * Expr(each);
    Running states = rolled_piece(pass, row, begin, min(begin + Expr(each), vectors_), each);
    std::vector<Guard> first{{mine_, Expr(0), Expr(1)}};
    PassStates sums = states_of(pass);
    const Running all = sums.across_threads(sums.across_lanes(states), group_);
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t y = 0; y < all[r].size(); ++y)
        store_state(b_, partials_[pass][r][y], flat_row * Expr(pieces_) + number, all[r][y], first);
  }

  /// The results of a pass, of the states of all pieces.
  void recall(int pass, const Point& row, const Expr& flat_row) {
    PassStates whole(e_, p_, pass, arithmetic_, points_of(r_, p_.reduced), 1, 1);
    Running total = whole.start();
    for (std::int64_t from = 0; from < pieces_; from += group_) {
      const Expr at = Expr(from) + mine_;
      std::vector<Guard> mask{{at, Expr(0), Expr(pieces_)}};
      Running part;
      for (const auto& yields : partials_[pass]) {
        part.emplace_back();
        for (const std::vector<int>& buffers : yields)
          part.back().push_back(load_state(b_, buffers, flat_row * Expr(pieces_) + at, 1, mask));
      }
      if (from + group_ <= pieces_)
        mask.clear();
      total = whole.keep(mask, whole.merge(total, part), total);
    }
    whole.provide(row, whole.across_threads(total, group_));
  }

  Running rolled_piece(int pass, const Point& row, const Expr& begin, const Expr& end,
                       std::int64_t each) {
    // The number of turns is that of a whole piece in every block, so that it is known here.
    const int copies = int(schedule_.knob("copies", 4));
    const std::int64_t span = std::int64_t(group_) * copies;
    Running states = start(pass);
    if (each > span)
      return rolled_pass(pass, row, begin, end, std::move(states));
    std::vector<Spot> spots;
    for (std::int64_t j = 0; j * group_ < each; ++j)
      spots.push_back(spot(row, begin + Expr(j * group_) + mine_, end));
    step(pass, spots, states);
    return states;
  }

  const Region& r_;
  const RowFacts& f_;
  const Passes& p_;
  const Schedule& schedule_;
  ProgramBuilder b_;
  Emitter e_;
  int threads_, group_;
  Expr t_;
  Expr mine_; ///< number of this thread in its group
  int lanes_ = 1;
  Arithmetic arithmetic_;
  RowKeep keep_ = RowKeep::Registers;
  std::int64_t pieces_ = 1;
  Shifted shifted_;
  std::int64_t roll_ = 0; ///< turns over what shared memory keeps that a loop does at a time
  std::int64_t run_ = 0;  ///< rows that a block does one after the other, fetching ahead
  Expr slot_ = Expr(0);   ///< half of the stash that holds the row
  Expr vectors_, rows_;
  std::vector<Expr> parallel_;
  std::vector<int> order_; ///< reduced axes, that of the vectors last
  std::optional<CarriedSums> carried_;
  std::vector<RowLoad> stash_;
  std::vector<int> stash_memory_;
  /// [pass][reduction][yield][part of the state]
  std::vector<std::vector<std::vector<std::vector<int>>>> partials_;
  int arrivals_ = -1;
};

constexpr Knob kGpuRowsKnobs[] = {{"threads", 32, 1024, 32}, {"group", 1, 1024}, {"keep", 0, 2},
                                  {"run", 0, 4096},          {"resident", 0, 1}, {"copies", 1, 16},
                                  {"roll", 0, 16},           {"shift", 0, 1},    {"online", 0, 2}};

class GpuRowsGenerator : public Generator {
public:
  std::string name() const override { return "gpu_rows"; }

  std::vector<Schedule> space(const Region& region, const Target& target) const override {
    return row_schedules(region, target);
  }

  Lowered lower(const Region& whole, const Schedule& schedule,
                const Target& target) const override {
    if (auto why = refused_settings(schedule, target, kGpuRowsKnobs); !why.empty())
      return {false, {}, why};
    const auto online = Online(schedule.knob("online", 0));
    const Region region = online != Online::No ? with_label_gathers(whole) : whole;
    RowFacts f(region, online);
    if (!f.passes.reason.empty())
      return {false, {}, f.passes.reason};
    if (online != Online::No && f.passes.count >= RowFacts(whole).passes.count)
      return {false, {}, "no sum goes along with its maximum or its mean"};
    const std::int64_t threads = schedule.knob("threads", 256),
                       group = schedule.knob("group", threads);
    const auto keep = RowKeep(schedule.knob("keep", 0));
    if (auto why = gpu_threads_refused(threads); !why.empty())
      return {false, {}, why};
    if (group != threads && (group < 1 || group > 32 || (group & (group - 1)) != 0))
      return {false, {}, "a group is a power of two up to 32, or the block"};
    const int lanes = gpu_lanes(
        region, f.inner, schedule.vector_bytes ? schedule.vector_bytes : target.vector_bytes);
    const Expr vectors = f.vectors(region, lanes);
    if (schedule.knob("shift", 0) != 0) {
      if (shifted_rows(region, f, target).lanes == 1)
        return {false, {}, "rows begin where memory is aligned, or do not begin alike"};
      if (keep != RowKeep::Nowhere || group < 3 || schedule.split_reduce > 1)
        return {false, {}, "shifted rows are done whole and kept nowhere"};
    }
    if (keep != RowKeep::Nowhere) {
      if (!vectors.is_constant())
        return {false, {}, "a row of unknown length is kept nowhere"};
      if ((vectors.value() + group - 1) / group * lanes > kMostRowUnrolled)
        return {false, {}, "a thread's part of a row is too long to be kept"};
    }
    if (f.passes.carries()) {
      if (schedule.knob("run", 0) == 0 || schedule.knob("roll", 0) != 0)
        return {false, {}, "sums of columns are carried along runs of rows"};
      if (!points_of(region, f.passes.parallel).is_constant() ||
          is_empty(region, f.passes.parallel) || is_empty(region, f.passes.reduced))
        return {false, {}, "sums of columns need a known number of rows"};
    }
    if (schedule.knob("run", 0) != 0) {
      if (schedule.knob("run", 0) < 0 || keep == RowKeep::Nowhere || group != threads ||
          schedule.split_reduce > 1 || schedule.order != WorkOrder::Fixed)
        return {false, {}, "rows are fetched ahead by whole blocks, in order, and are kept"};
      if (!target.has(Capability::AsyncCopies) || row_loads(region, f, lanes).empty())
        return {false, {}, "there is nothing that asynchronous copies could fetch ahead"};
    }
    if (schedule.split_reduce > 1) {
      if (f.passes.carries())
        return {false, {}, "rows whose columns are summed too are not cut into pieces"};
      if (!vectors.is_constant() || !points_of(region, f.passes.parallel).is_constant())
        return {false, {}, "rows of unknown number or length are not cut into pieces"};
      if (group != threads)
        return {false, {}, "pieces are done by whole blocks"};
      const std::int64_t each =
          (vectors.value() + schedule.split_reduce - 1) / schedule.split_reduce;
      if (each * (schedule.split_reduce - 1) >= vectors.value())
        return {false, {}, "too short for so many pieces"};
    }
    KernelProgram program = GpuRows(region, f, schedule, target).run();
    return within_block(std::move(program), target);
  }
};

} // namespace

const Generator& gpu_rows_generator() {
  static const GpuRowsGenerator generator;
  return generator;
}

} // namespace egret::kernel

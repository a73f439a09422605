#include "kernel/gpu_row_space.h"

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_row_facts.h"
#include "kernel/gpu_row_time.h"
#include "kernel/label_terms.h"
#include "kernel/passes.h"

#include <algorithm>
#include <array>
#include <limits>

namespace egret::kernel {

namespace {

/// Registers that a turn of a loop over a row takes for an element.
constexpr std::int64_t kOfElement = 4;
/// Sums of columns that a thread may carry, and threads of a multiprocessor that do.
constexpr std::int64_t kCarriedSums = 32, kCarryingThreads = 512;
constexpr std::int64_t kLongRow = 32 << 10; ///< bytes
/// Vectors of a row from which several blocks share it; and how many times fewer rows than
/// multiprocessors, and more vectors, make a barrier of the grid between the passes worth while.
constexpr std::int64_t kSplitVectors = 4 * 1024, kMeetingRows = 4;
/// Turns of a row in shared memory that are one after the other in the code; more are a loop.
constexpr std::int64_t kLongTurns = 4;
/// Vectors of a row from which means and spreads are made in one pass.
constexpr std::int64_t kSpreadVectors = 512;
/// Schedules at the most; and times that the estimate cannot tell apart.
constexpr std::size_t kMostSchedules = 24;
constexpr double kAlike = 1.05;

class RowProposals {
public:
  RowProposals(const Region& region, const RowFacts& facts, const Target& target)
      : r_(region), f_(facts), target_(target), picked_(with_label_gathers(region)),
        together_(picked_, Online::Scaled), spreads_(picked_, Online::Spreads),
        lanes_(gpu_lanes(region, facts.inner, target.vector_bytes)) {
    const Expr count = f_.vectors(region, lanes_);
    known_ = count.is_constant();
    vectors_ = about(count);
    rows_ = about(points_of(region, f_.passes.parallel));
    policy_ = gpu_store_policy(region, target);
    for (const RowLoad& l : row_loads(region, f_, lanes_))
      row_bytes_ +=
          vectors_ * lanes_ * std::int64_t(size_of(region.operands[l.load->number].dtype));
    scales_ = together_.passes.reason.empty() && together_.suits(picked_, target) && known_ &&
              together_.passes.count < f_.passes.count;
    one_pass_ = scales_ && together_.passes.count == 1 && together_.passes.outputs[0].empty();
  }

  std::vector<Schedule> run() {
    if (f_.passes.carries()) {
      carried();
      return std::move(out_);
    }
    pieces();
    fetched_ahead();
    blocks_in_turn();
    groups();
    blocks();
    shifted();
    return ranked();
  }

private:
  /// Settings of a schedule beside its threads.
  struct Parameters {
    RowKeep keep = RowKeep::Nowhere;
    Online online = Online::No;
    bool drawn = false, resident = false, shift = false;
    std::int64_t run = 0, roll = 0, pieces = 1;
  };

  Schedule& add(std::int64_t threads, std::int64_t group, const Parameters& p) {
    Schedule s;
    s.generator = "gpu_rows";
    s.knobs = {{"threads", threads}, {"group", group}, {"keep", std::int64_t(p.keep)}};
    const auto set = [&](const char* name, std::int64_t value) {
      if (value != 0)
        s.knobs[name] = value;
    };
    set("resident", p.resident);
    set("run", p.run);
    set("roll", p.roll);
    set("online", std::int64_t(p.online));
    set("shift", p.shift);
    // Several passes have more at hand for each element than one sum.
    const std::int64_t fits = target_.registers / threads / kOfElement / lanes_;
    if (p.shift)
      s.knobs["copies"] = 2;
    else if (p.keep == RowKeep::Nowhere && f_.passes.count > 1 && fits < 4)
      s.knobs["copies"] = power_of_two_upto(std::max<std::int64_t>(fits, 1));
    s.order = p.drawn ? WorkOrder::Drawn : WorkOrder::Fixed;
    s.split_reduce = p.pieces;
    s.store_policy = policy_;
    if (const auto same = std::ranges::find(out_, s); same != out_.end())
      return *same;
    return out_.emplace_back(std::move(s));
  }

  /// So many threads, up to `most`, that the last turn over the row has something to do for all.
  std::int64_t even_threads(std::int64_t most) const {
    const std::int64_t turns = (vectors_ + most - 1) / most, share = (vectors_ + turns - 1) / turns;
    return (share + 31) / 32 * 32;
  }
  std::int64_t turns(std::int64_t threads) const {
    return std::max<std::int64_t>(1, (vectors_ + threads - 1) / threads);
  }

  /// Rows whose columns are summed too.
  void carried() {
    if (!known_ || !points_of(r_, f_.passes.parallel).is_constant() || row_bytes_ == 0)
      return;
    std::int64_t sums = 0;
    for (const auto& stages : f_.passes.carried)
      sums += std::int64_t(stages.size());
    // Measured: registers for all that is at hand matter more than many threads.
    for (std::int64_t most : {256, 512, 128}) {
      const std::int64_t turns = (vectors_ + most - 1) / most, threads = even_threads(most);
      const std::int64_t blocks =
          std::clamp<std::int64_t>(target_.shared_bytes / (2 * row_bytes_ + 2048), 1,
                                   std::max<std::int64_t>(kCarryingThreads / threads, 2));
      const std::int64_t run = std::clamp<std::int64_t>(
          (rows_ + blocks * target_.workers - 1) / (blocks * target_.workers), 1, 4096);
      if (turns * lanes_ * sums > kCarriedSums ||
          2 * row_bytes_ + 8192 > target_.block_shared_bytes)
        continue;
      const bool fits = turns * lanes_ <= kept_elements(threads, target_) / 2;
      for (bool registers : {fits, !fits})
        // All shares at the same time: registers for so many blocks.
        add(threads, threads,
            {.keep = registers ? RowKeep::Registers : RowKeep::Shared, .run = run})
            .blocks_per_core = int(blocks);
    }
  }

  /// Rows that begin anywhere, by aligned vectors.
  void shifted() {
    if (shifted_rows(r_, f_, target_).lanes == 1)
      return;
    for (bool along : {scales_, false})
      for (std::int64_t threads : {512, 1024, 256, 128, 64})
        add(threads, threads, {.online = along ? Online::Scaled : Online::No, .shift = true});
    for (bool along : {scales_, false})
      for (std::int64_t group : {32, 16, 8})
        add(128, group, {.online = along ? Online::Scaled : Online::No, .shift = true});
  }

  /// Somewhat fewer parts than `most`, each of whole iterations of a block of 256 threads, if it
  /// can be of those of its loop over four vectors a thread.
  std::int64_t even_parts(std::int64_t most) const {
    const std::int64_t each = (vectors_ + most - 1) / most;
    for (const std::int64_t iteration : {1024, 256}) {
      const std::int64_t whole = (each + iteration - 1) / iteration * iteration,
                         parts = (vectors_ + whole - 1) / whole;
      if (parts >= 2 && 20 * parts >= 19 * most)
        return parts;
    }
    return most;
  }

  /// Few rows and much to sum: several blocks a row, in as few passes as it takes. One pass over a
  /// long row needs no place for it.
  void pieces() {
    const bool fixed = known_ && points_of(r_, f_.passes.parallel).is_constant();
    const bool one_spread =
        fixed && f_.passes.count > 1 && spreads_.passes.reason.empty() && !spreads_.passes.waits();
    const bool meets = f_.passes.waits() && !one_pass_ && !one_spread; // blocks, between passes
    if (fixed && rows_ > 0 &&
        (meets ? kMeetingRows * rows_ <= target_.workers && vectors_ >= kMeetingRows * kSplitVectors
               : rows_ < target_.workers && vectors_ >= kSplitVectors))
      for (std::int64_t share : {2, 4, 1})
        add(256, 256,
            {.online = scales_      ? Online::Scaled
                       : one_spread ? Online::Spreads
                                    : Online::No,
             .pieces = even_parts(std::clamp<std::int64_t>(
                 std::min(share * target_.workers / rows_, vectors_ / 512), 2, 1024))});
    if (one_pass_)
      for (std::int64_t threads : {128, 256, 512})
        if (vectors_ >= 2 * threads)
          add(threads, threads, {.online = Online::Scaled});
  }

  /// A block that has a multiprocessor to itself would leave the memory idle while it computes.
  void fetched_ahead() {
    if (!known_ || row_bytes_ < kLongRow || f_.passes.count < 2)
      return;
    for (std::int64_t most : {512, 256, 1024}) {
      const std::int64_t threads = even_threads(most), each = turns(most);
      const std::int64_t elements = each * lanes_; // of a thread
      const std::int64_t blocks =
          std::clamp<std::int64_t>(target_.shared_bytes / (2 * row_bytes_ + 2048), 1,
                                   std::max<std::int64_t>(target_.threads / threads, 1));
      const std::int64_t run = (rows_ + blocks * target_.workers - 1) / (blocks * target_.workers);
      if (run < 2 || elements > kMostRowUnrolled ||
          2 * row_bytes_ + 8192 > target_.block_shared_bytes)
        continue;
      const bool fits = elements <= kept_elements(threads, target_);
      for (bool along : {scales_ && !one_pass_, false})
        for (bool registers : {fits, !fits})
          for (std::int64_t roll : {kLongTurns, std::int64_t(0)})
            if (registers ? roll == 0 && elements <= 2 * kept_elements(threads, target_)
                          : roll == 0 || each > kLongTurns)
              add(threads, threads,
                  {.keep = registers ? RowKeep::Registers : RowKeep::Shared,
                   .online = along ? Online::Scaled : Online::No,
                   .run = run,
                   .roll = roll});
    }
  }

  /// Two blocks with a row each: one computes while the other waits for memory.
  void blocks_in_turn() {
    if (!scales_ || one_pass_ || row_bytes_ < kLongRow ||
        2 * row_bytes_ + 8192 > target_.shared_bytes)
      return;
    for (std::int64_t threads : {512, 1024, 256})
      for (RowKeep keep : {RowKeep::Shared, RowKeep::Nowhere})
        if (keep == RowKeep::Nowhere || turns(threads) * lanes_ <= kMostRowUnrolled)
          add(threads, threads, {.keep = keep, .online = Online::Scaled, .drawn = true});
  }

  /// A warp or a part of it does a row.
  void groups() {
    // What every row reads (weights) stays in the registers of blocks that do many rows.
    const bool weights = known_ && reads_weights(r_, f_);
    const RowKeep keep = known_ ? RowKeep::Registers : RowKeep::Nowhere;
    std::int64_t first = 2; // about four vectors a thread
    while (first < 32 && first * 4 < vectors_)
      first *= 2;
    for (std::int64_t group :
         std::array{first, 2 * first, first / 2, 4 * first, first / 4, first / 8})
      if (group >= 1 && group <= 32 && (group == 1 || group / 2 < vectors_) &&
          (keep == RowKeep::Nowhere || turns(group) * lanes_ <= kept_elements(256, target_)))
        for (std::int64_t threads : {128, 256})
          for (bool resident : {weights, !weights})
            add(threads, group, {.keep = keep, .resident = resident});
  }

  /// A block does a row.
  void blocks() {
    for (std::int64_t each : {4, 2, 8, 1, 16}) {
      const std::int64_t threads =
          std::clamp<std::int64_t>(((vectors_ + each - 1) / each + 31) / 32 * 32, 32, 1024);
      const std::int64_t elements = turns(threads) * lanes_;
      const bool fits = known_ && elements <= kept_elements(threads, target_);
      const bool stashes = f_.passes.count > 1 && known_ && elements <= kMostRowUnrolled &&
                           elements * threads * 4 <= (fits ? target_.block_shared_bytes / 2
                                                           : target_.block_shared_bytes - 16384);
      const RowKeep keep = fits ? RowKeep::Registers : stashes ? RowKeep::Shared : RowKeep::Nowhere;
      // Blocks that stay with their weights at hand are no quicker (16384 x 4096 of bf16: 66.0 us
      // and 68.6, with two weights 77.4 and 79.5).
      for (bool drawn : {false, true})
        add(threads, threads, {.keep = keep, .drawn = drawn});
      if (fits && stashes)
        add(threads, threads, {.keep = RowKeep::Shared});
    }
    add(256, 256, {});
    // Means and spreads in one pass, for rows that nothing keeps.
    if (f_.passes.count > 2 && known_ && vectors_ >= kSpreadVectors &&
        spreads_.passes.reason.empty() && together_.passes.reason.empty() &&
        spreads_.passes.count < together_.passes.count)
      for (std::int64_t threads : {512, 256, 128})
        add(threads, threads, {.online = Online::Spreads});
  }

  /// The quickest first; of those that are alike, in the order of the proposals.
  std::vector<Schedule> ranked() {
    struct Ranked {
      Schedule schedule;
      double seconds;
    };
    const RowTime plain(r_, f_, target_);
    const auto online = [&](const RowFacts& facts) {
      return facts.passes.reason.empty()
                 ? std::optional<RowTime>(std::in_place, picked_, facts, target_)
                 : std::nullopt;
    };
    const std::optional<RowTime> scaled = online(together_), spread = online(spreads_);
    std::vector<Ranked> all;
    double least = std::numeric_limits<double>::infinity();
    for (Schedule& s : out_) {
      const auto kind = Online(s.knob("online", 0));
      const RowTime& time = kind == Online::No       ? plain
                            : kind == Online::Scaled ? scaled.value()
                                                     : spread.value();
      const double seconds = time.seconds(s);
      least = std::min(least, seconds);
      all.push_back({std::move(s), seconds});
    }
    for (Ranked& r : all)
      r.seconds = std::max(r.seconds, least * kAlike);
    std::ranges::stable_sort(all, {}, &Ranked::seconds);
    std::vector<Schedule> first;
    for (Ranked& r : all)
      if (first.size() < kMostSchedules)
        first.push_back(std::move(r.schedule));
    return first;
  }

  const Region& r_;
  const RowFacts& f_;
  const Target& target_;
  const Region picked_; ///< with sums that pick one element as loads of it
  const RowFacts together_, spreads_;
  int lanes_;
  bool known_ = false; ///< the length of a row
  std::int64_t vectors_ = 0, rows_ = 0;
  std::int64_t row_bytes_ = 0; ///< of what is fetched ahead
  CachePolicy policy_ = CachePolicy::Default;
  bool scales_ = false;   ///< sums may go along with their maxima, which saves passes
  bool one_pass_ = false; ///< and leaves one
  std::vector<Schedule> out_;
};

} // namespace

std::vector<Schedule> row_schedules(const Region& region, const Target& target) {
  const RowFacts facts(region);
  if (!facts.passes.reason.empty() || !facts.suits(region, target))
    return {};
  return RowProposals(region, facts, target).run();
}

} // namespace egret::kernel

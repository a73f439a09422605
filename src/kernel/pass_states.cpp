#include "kernel/pass_states.h"

#include "kernel/stream_form.h"
#include "kernel/stream_rows.h"

#include <algorithm>

namespace egret::kernel {

PassStates::PassStates(Emitter& emitter, const Passes& passes, int pass,
                       const Arithmetic& arithmetic, const Expr& places, int lanes, int pair_lanes)
    : e_(emitter), b_(emitter.builder()), stages_(passes.reductions[std::size_t(pass)]),
      arithmetic_(arithmetic), places_(places), lanes_(lanes), pair_lanes_(pair_lanes) {
  for (int stage : stages_) {
    const int maximum = passes.scaled_by[std::size_t(stage)];
    maximum_.push_back(
        maximum < 0 ? -1
                    : int(std::find(stages_.begin(), stages_.end(), maximum) - stages_.begin()));
    in_pair_.push_back(passes.is_in_pair(stage));
    exponentials_.push_back(maximum >= 0 && is_scaled_by(e_.region(), stage, maximum, true, true));
    spread_.push_back(emitter.means.contains(stage));
    pairs_ = pairs_ || maximum >= 0;
    spreads_ = spreads_ || spread_.back();
  }
}

Accumulator PassStates::accumulator(std::size_t r, std::size_t y) {
  return {e_, stages_[r], int(y), arithmetic_, places_};
}

Running PassStates::start() {
  Running states;
  for (std::size_t r = 0; r < stages_.size(); ++r) {
    states.emplace_back();
    const Stage& stage = e_.region().stages[std::size_t(stages_[r])];
    for (std::size_t y = 0; y < stage.yields.size(); ++y)
      states.back().push_back(
          accumulator(r, y).identity(in_pair_[r] || spread_[r] ? pair_lanes_ : lanes_));
  }
  return states;
}

void PassStates::add(Running& states, std::span<const Spot> spots, bool check_mask) {
  for (const Spot& s : spots)
    for (std::size_t r = 0; r < stages_.size(); ++r)
      for (std::size_t y = 0; !in_pair_[r] && !spread_[r] && y < states[r].size(); ++y) {
        Accumulator acc = accumulator(r, y);
        const State next = acc.add(states[r][y], *s.point, s.place, check_mask);
        states[r][y] = acc.keep({s.own.begin(), s.own.end()}, next, states[r][y]);
      }
  for (std::size_t r = 0; r < stages_.size(); ++r)
    if (spread_[r])
      states[r][0] = add_spread(r, states[r][0], spots, check_mask);
  if (pairs_)
    add_pairs(states, spots, check_mask);
}

State PassStates::add_spread(std::size_t r, const State& state, std::span<const Spot> spots,
                             bool check_mask) {
  std::vector<Accumulator::Member> members;
  for (const Spot& s : spots)
    members.push_back({s.point, check_mask ? std::span<const Guard>(s.point->mask) : s.own});
  return accumulator(r, 0).add_together(state, members);
}

void PassStates::add_pairs(Running& states, std::span<const Spot> spots, bool check_mask) {
  for (std::size_t m = 0; m < stages_.size(); ++m) {
    if (std::find(maximum_.begin(), maximum_.end(), int(m)) == maximum_.end())
      continue;
    const State before = states[m][0];
    const State now = accumulator(m, 0).merge(before, tile(m, spots, check_mask));
    const ValueId scale = rescale(b_, before[0], now[0]);
    e_.provide(stages_[m], *spots[0].point, {{or_zero(b_, now[0]), DType::F32}});
    e_.forget_readers(stages_[m]);
    for (std::size_t r = 0; r < stages_.size(); ++r) {
      if (maximum_[r] != int(m))
        continue;
      e_.beside_one = exponentials_[r];
      const ValueId more = tile(r, spots, check_mask)[0];
      e_.beside_one = false;
      const ValueId sum = states[r][0][0];
      states[r][0] = {arithmetic_.fma ? b_.fma(sum, scale, more)
                                      : b_.apply(Op::Add, DType::F32, {times(sum, scale), more})};
    }
    states[m][0] = now;
    e_.forget_readers(stages_[m]);
  }
}

State PassStates::tile(std::size_t r, std::span<const Spot> spots, bool check_mask) {
  Accumulator acc = accumulator(r, 0);
  State state = acc.identity(lanes_);
  for (const Spot& s : spots)
    state = acc.keep({s.own.begin(), s.own.end()}, acc.add(state, *s.point, s.place, check_mask),
                     state);
  return pair_lanes_ == 1 ? acc.across_lanes(state) : state;
}

ValueId PassStates::times(ValueId sum, ValueId scale) {
  return b_.apply(Op::Mul, DType::F32, {sum, scale});
}

State PassStates::rescaled(std::size_t r, const Running& before, const Running& now) {
  const auto m = std::size_t(maximum_[r]);
  return {times(before[r][0][0], rescale(b_, before[m][0][0], now[m][0][0]))};
}

Running PassStates::across_lanes(const Running& states) {
  Running all = states;
  for (std::size_t r = 0; r < states.size(); ++r)
    for (std::size_t y = 0; maximum_[r] < 0 && y < states[r].size(); ++y)
      all[r][y] = accumulator(r, y).across_lanes(states[r][y]);
  for (std::size_t r = 0; r < states.size(); ++r)
    if (maximum_[r] >= 0)
      all[r][0] = accumulator(r, 0).across_lanes(rescaled(r, states, all));
  return all;
}

Running PassStates::across_threads(const Running& states, int threads) {
  Running all = states;
  for (std::size_t r = 0; r < states.size(); ++r)
    for (std::size_t y = 0; maximum_[r] < 0 && y < states[r].size(); ++y)
      all[r][y] = accumulator(r, y).across_threads(states[r][y], threads);
  for (std::size_t r = 0; r < states.size(); ++r)
    if (maximum_[r] >= 0)
      all[r][0] = accumulator(r, 0).across_threads(rescaled(r, states, all), threads);
  return all;
}

Running PassStates::merge(const Running& a, const Running& b) {
  Running all = a;
  for (std::size_t r = 0; r < a.size(); ++r)
    for (std::size_t y = 0; maximum_[r] < 0 && y < a[r].size(); ++y)
      all[r][y] = accumulator(r, y).merge(a[r][y], b[r][y]);
  for (std::size_t r = 0; r < a.size(); ++r)
    if (maximum_[r] >= 0)
      all[r][0] = accumulator(r, 0).merge(rescaled(r, a, all), rescaled(r, b, all));
  return all;
}

Running PassStates::keep(const std::vector<Guard>& mask, const Running& next,
                         const Running& states) {
  Running kept = next;
  for (std::size_t r = 0; r < next.size(); ++r)
    for (std::size_t y = 0; y < next[r].size(); ++y)
      kept[r][y] = accumulator(r, y).keep(mask, next[r][y], states[r][y]);
  return kept;
}

void PassStates::provide(const Point& row, const Running& states) {
  for (std::size_t r = 0; r < states.size(); ++r) {
    std::vector<Value> values;
    for (std::size_t y = 0; y < states[r].size(); ++y) {
      State state = states[r][y];
      if (maximum_[r] >= 0)
        state = {unless_lowest(b_, states[std::size_t(maximum_[r])][0][0], state[0])};
      values.push_back(accumulator(r, y).finish(state));
    }
    e_.provide(stages_[r], row, std::move(values));
    if (in_pair_[r])
      e_.forget_readers(stages_[r]);
  }
}

} // namespace egret::kernel

#include "kernel/gpu_carried.h"

#include "kernel/analysis.h"

#include <algorithm>
#include <cmath>

namespace egret::kernel {

CarriedSums::CarriedSums(Emitter& emitter, const Passes& passes, const Arithmetic& arithmetic,
                         const Layout& layout)
    : e_(emitter), b_(emitter.builder()), passes_(passes), arithmetic_(arithmetic), at_(layout),
      rows_(points_of(emitter.region(), passes.parallel)) {
  together_ = std::max<std::int64_t>(
      std::int64_t(std::ceil(std::sqrt(double(std::max<std::int64_t>(at_.shares, 1))))), 1);
  groups_ = (at_.shares + together_ - 1) / together_;
  arrivals_ = b_.counter("arrivals", groups_ + 1);
  const Expr vectors(at_.turns * at_.threads * at_.lanes);
  for (int pass = 0; pass < passes_.count; ++pass)
    for (int stage : passes_.carried[pass])
      for (std::size_t y = 0; y < e_.region().stages[stage].yields.size(); ++y) {
        Sum sum{stage, int(y), pass, {}, {}, {}};
        sum.shares = accumulator(sum).workspaces(Expr(at_.shares) * vectors);
        sum.groups = accumulator(sum).workspaces(Expr(groups_) * vectors);
        sums_.push_back(std::move(sum));
      }
}

Accumulator CarriedSums::accumulator(const Sum& sum) {
  return Accumulator(e_, sum.stage, sum.yield, arithmetic_, rows_);
}

void CarriedSums::begin() {
  for (Sum& sum : sums_) {
    sum.states.clear();
    for (std::int64_t turn = 0; turn < at_.turns; ++turn)
      sum.states.emplace_back(b_, accumulator(sum).identity(at_.lanes));
  }
}

void CarriedSums::add(int pass, std::int64_t turn, const Point& point) {
  // Lanes beyond the row's end are never stored, so that no mask need be looked at.
  for (Sum& sum : sums_)
    if (sum.pass == pass) {
      const StateVariables& state = sum.states[std::size_t(turn)];
      state.write(accumulator(sum).add(state.read(), point, Expr(0), false));
    }
}

Expr CarriedSums::place(const Expr& number, std::int64_t turn) const {
  return ((number * Expr(at_.turns) + Expr(turn)) * Expr(at_.threads) + at_.thread) *
             Expr(at_.lanes) +
         (at_.lanes > 1 ? lane_variable(at_.lanes) : Expr(0));
}

void CarriedSums::save(const std::vector<int> Sum::*memory, const Expr& number) {
  for (Sum& sum : sums_)
    for (std::int64_t turn = 0; turn < at_.turns; ++turn)
      store_state(b_, sum.*memory, place(number, turn), sum.states[std::size_t(turn)].read());
}

void CarriedSums::restore(const std::vector<int> Sum::*memory, const Expr& first, std::int64_t most,
                          const Expr& end) {
  begin();
  constexpr std::int64_t kBatch = 4; // loads that are under way together
  b_.loop(Expr(0), Expr((most + kBatch - 1) / kBatch), Expr(1), Expr((most + kBatch - 1) / kBatch),
          Bind::Serial, [&](const Expr& i) {
            for (Sum& sum : sums_)
              for (std::int64_t turn = 0; turn < at_.turns; ++turn) {
                const StateVariables& state = sum.states[std::size_t(turn)];
                Accumulator acc = accumulator(sum);
                std::vector<State> parts;
                std::vector<std::vector<Guard>> there;
                for (std::int64_t j = 0; j < kBatch; ++j) {
                  const Expr number = first + i * Expr(kBatch) + Expr(j);
                  there.push_back({{number, first, end}});
                  parts.push_back(
                      load_state(b_, sum.*memory, place(number, turn), at_.lanes, there.back()));
                }
                State all = state.read();
                for (std::size_t j = 0; j < parts.size(); ++j)
                  all = acc.keep(there[j], acc.merge(all, parts[j]), all);
                state.write(all);
              }
          });
}

void CarriedSums::finish(const Expr& share, const std::function<Point(std::int64_t)>& columns,
                         CachePolicy policy) {
  save(&Sum::shares, share);
  const Expr group = floordiv(share, Expr(together_)), first = group * Expr(together_);
  const Expr end = min(first + Expr(together_), Expr(at_.shares));
  b_.last_arriver(arrivals_, group, end - first, [&] {
    restore(&Sum::shares, first, together_, end);
    save(&Sum::groups, group);
    b_.last_arriver(arrivals_, Expr(groups_), Expr(groups_), [&] {
      restore(&Sum::groups, Expr(0), groups_, Expr(groups_));
      deliver(columns, policy);
    });
  });
}

void CarriedSums::deliver(const std::function<Point(std::int64_t)>& columns, CachePolicy policy) {
  const Region& region = e_.region();
  for (std::int64_t turn = 0; turn < at_.turns; ++turn) {
    const Point point = columns(turn);
    for (std::size_t s = 0; s < sums_.size();) {
      const int stage = sums_[s].stage;
      std::vector<Value> values;
      for (; s < sums_.size() && sums_[s].stage == stage; ++s)
        values.push_back(accumulator(sums_[s]).finish(sums_[s].states[std::size_t(turn)].read()));
      e_.provide(stage, point, std::move(values));
    }
    std::vector<Value> results; // all of them first: an output may lie in the memory of an operand
    for (int o : passes_.column_outputs)
      results.push_back(e_.result(region.outputs[o].stage, region.outputs[o].component, point));
    for (std::size_t i = 0; i < results.size(); ++i)
      e_.store(passes_.column_outputs[i], point, results[i], policy);
  }
}

} // namespace egret::kernel

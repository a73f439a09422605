#include "kernel/accumulate.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::kernel {

namespace {

bool varies_by_lane(std::span<const Guard> mask) {
  return std::ranges::any_of(mask, [](const Guard& g) { return depends_on_lane(g); });
}

} // namespace

Arithmetic arithmetic_of(const Target& target) {
  return {target.has_fma, target.is_gpu()};
}

Accumulator::Accumulator(Emitter& emitter, int stage, int yield, const Arithmetic& arithmetic,
                         const Expr& places)
    : e_(emitter), b_(emitter.builder()), stage_(stage), yield_(yield), arithmetic_(arithmetic) {
  const Stage& s = emitter.region().stages[stage];
  monoid_ = s.monoid == Monoid::Linear && yield == 1 ? Monoid::Prod : s.monoid;
  dtype_ = compute_dtype(monoid_ == Monoid::ArgMax ? s.body[s.yields[yield]].dtype : s.acc_dtype);
  place_ = places.upper() <= INT32_MAX ? DType::I32 : DType::I64;
  arithmetic_.fma = arithmetic.fma && (monoid_ == Monoid::Sum || monoid_ == Monoid::Linear);
  if (const auto mean = emitter.means.find(stage); mean != emitter.means.end())
    mean_ = mean->second;
}

std::vector<Type> Accumulator::types(int lanes) const {
  if (is_spread())
    return {{dtype_, lanes}, {dtype_, lanes}, {dtype_, lanes}};
  if (monoid_ == Monoid::ArgMax)
    return {{dtype_, lanes}, {place_, lanes}};
  if (watches_nan() || monoid_ == Monoid::Linear)
    return {{dtype_, lanes}, {dtype_, lanes}};
  return {{dtype_, lanes}};
}

State Accumulator::identity(int lanes) {
  // Of argmax, the value that every other one beats.
  ValueId v =
      b_.constant(identity_of(monoid_ == Monoid::ArgMax ? Monoid::Max : monoid_, dtype_), lanes);
  if (is_spread())
    return {v, v, v};
  if (watches_nan())
    return {v, b_.constant(Scalar::of(dtype_, 0.0), lanes)};
  if (monoid_ == Monoid::Linear)
    return {v, b_.constant(Scalar::of(dtype_, 1.0), lanes)};
  if (monoid_ != Monoid::ArgMax)
    return {v};
  return {v, b_.constant(Scalar::of(place_, std::int64_t(0)), lanes)};
}

State Accumulator::identity_of_columns(int lanes) {
  State state = identity(lanes);
  if (is_spread())
    state[2] = b_.constant(Scalar::of(dtype_, 0.0));
  return state;
}

State Accumulator::choose(ValueId condition, const State& yes, const State& no) {
  State out;
  for (std::size_t i = 0; i < yes.size(); ++i)
    out.push_back(b_.apply(Op::Select, b_.type_of(no[i]).dtype, {condition, yes[i], no[i]}));
  return out;
}

State Accumulator::term(const Point& point) {
  if (monoid_ != Monoid::Linear)
    return add(identity(point.lanes), point, Expr(0), false);
  const std::vector<Value> map = e_.yields(stage_, point);
  State state;
  for (const Value& part : map)
    state.push_back(b_.splat(b_.cast(part.id, dtype_), point.lanes));
  return state;
}

State Accumulator::add(const State& state, const Point& point, const Expr& place, bool check_mask) {
  const bool masked = check_mask && varies_by_lane(point.mask);
  auto kept = [&](const State& next) {
    return masked ? choose(b_.test(point.mask, point.lanes), next, state) : next;
  };
  if (is_spread()) {
    const ValueId x = b_.cast(e_.yields(mean_, point)[0].id, dtype_);
    return kept(add_deviation(state, b_.splat(x, b_.type_of(state[0]).lanes)));
  }
  if (monoid_ == Monoid::Linear) {
    const State map = term(point);
    return kept(
        {multiply_add(map[1], state[0], map[0]), b_.apply(Op::Mul, dtype_, {state[1], map[1]})});
  }
  if (arithmetic_.fma)
    if (auto f = e_.factors(stage_, yield_, point))
      return kept({b_.fma(f->first, f->second, state[0])});
  Value v = e_.yields(stage_, point)[yield_];
  ValueId id = b_.cast(v.id, dtype_);
  if (watches_nan())
    return kept(merge(state, {id, id}));
  if (monoid_ != Monoid::ArgMax)
    return kept({b_.apply(op_of(monoid_), dtype_, {state[0], id})});
  State candidate{id, b_.index(place, place_, depends_on_lane(place) ? point.lanes : 1)};
  // Places come in ascending order in every lane, so that a strict comparison keeps the first.
  return kept(choose(better(candidate, state, false), candidate, state));
}

State Accumulator::where(const std::vector<Guard>& mask, const State& state) {
  int lanes = b_.type_of(state[0]).lanes;
  return mask.empty() ? state : choose(b_.test(mask, lanes), state, identity(lanes));
}

ValueId Accumulator::better(const State& candidate, const State& best, bool ties) {
  auto both = [&](ValueId x, ValueId y) { return b_.apply(Op::And, DType::Bool, {x, y}); };
  auto either = [&](ValueId x, ValueId y) { return b_.apply(Op::Or, DType::Bool, {x, y}); };
  ValueId c = candidate[0], k = best[0];
  ValueId wins = b_.apply(Op::Lt, DType::Bool, {k, c});
  ValueId same = b_.apply(Op::Eq, DType::Bool, {k, c});
  if (is_float(dtype_)) {
    ValueId yes = b_.constant(Scalar::of(DType::Bool, std::int64_t(1)));
    ValueId number = b_.apply(Op::Eq, DType::Bool, {k, k});
    ValueId nan = b_.apply(Op::Xor, DType::Bool, {b_.apply(Op::Eq, DType::Bool, {c, c}), yes});
    wins = either(wins, both(number, nan));
    if (ties)
      same = either(same, both(nan, b_.apply(Op::Xor, DType::Bool, {number, yes})));
  }
  if (!ties)
    return wins;
  return either(wins, both(same, b_.apply(Op::Lt, DType::Bool, {candidate[1], best[1]})));
}

ValueId Accumulator::number(double x, ValueId like) {
  return b_.constant(Scalar::of(dtype_, x), b_.type_of(like).lanes);
}

ValueId Accumulator::multiply_add(ValueId a, ValueId b, ValueId c) {
  return arithmetic_.fma ? b_.fma(a, b, c)
                         : b_.apply(Op::Add, dtype_, {b_.apply(Op::Mul, dtype_, {a, b}), c});
}

State Accumulator::add_deviation(const State& state, ValueId x) {
  const ValueId minus = number(-1, x);
  const ValueId count = b_.apply(Op::Add, dtype_, {state[2], number(1, state[2])});
  const ValueId before = multiply_add(state[1], minus, x);
  // One division for all lanes where they share their count.
  const ValueId share = b_.apply(Op::Div, dtype_, {number(1, count), count});
  const ValueId mean = multiply_add(before, share, state[1]);
  return {multiply_add(before, multiply_add(mean, minus, x), state[0]), mean, count};
}

ValueId Accumulator::apart(ValueId x, ValueId from) {
  return multiply_add(b_.splat(from, b_.type_of(x).lanes), number(-1, x), x);
}

State Accumulator::add_together(const State& state, std::span<const Member> members) {
  ensure(is_spread() && !members.empty(), "only spreads take points together");
  const bool one = b_.type_of(state[0]).lanes == 1;
  const auto sum = [&](ValueId a, ValueId b) { return b_.apply(Op::Add, dtype_, {a, b}); };
  const auto of_lanes = [&](ValueId v) { return one ? b_.reduce_lanes(Monoid::Sum, v) : v; };
  const auto or_zero = [&](ValueId there, ValueId v) {
    return there < 0 ? v : b_.apply(Op::Select, dtype_, {there, v, number(0, v)});
  };
  struct Term {
    ValueId x, there;
  };
  std::vector<Term> terms;
  ValueId count = state[2], total = -1;
  int certain = 0; // points that are there in every thread
  for (const Member& m : members) {
    const int lanes = m.point->lanes;
    const ValueId x = b_.splat(b_.cast(e_.yields(mean_, *m.point)[0].id, dtype_), lanes);
    ValueId there = -1;
    if (m.own.empty()) {
      certain += one ? lanes : 1;
    } else {
      const bool by_lane = varies_by_lane(m.own);
      there = b_.test({m.own.begin(), m.own.end()}, by_lane ? lanes : 1);
      const bool all = one && !by_lane; // or none, of the lanes
      const ValueId each =
          b_.constant(Scalar::of(dtype_, double(all ? lanes : 1)), all ? 1 : lanes);
      count = sum(count, of_lanes(or_zero(there, each)));
    }
    const ValueId away = or_zero(there, apart(x, state[1]));
    total = total < 0 ? away : sum(total, away);
    terms.push_back({x, there});
  }
  ValueId divisor = count;
  if (certain > 0)
    divisor = count = sum(count, number(certain, count));
  else
    divisor = b_.apply(Op::Max, dtype_, {count, number(1, count)});
  const ValueId share = b_.apply(Op::Div, dtype_, {number(1, divisor), divisor});
  const ValueId mean = multiply_add(of_lanes(total), share, state[1]);
  ValueId squares = -1;
  for (const Term& t : terms) {
    const ValueId away = or_zero(t.there, apart(t.x, mean));
    squares =
        squares < 0 ? b_.apply(Op::Mul, dtype_, {away, away}) : multiply_add(away, away, squares);
  }
  // Each factor by itself, so that a state without points adds 0 however far away they are.
  const ValueId moved = apart(mean, state[1]);
  const ValueId before =
      multiply_add(b_.apply(Op::Mul, dtype_, {moved, state[2]}), moved, state[0]);
  return {sum(before, of_lanes(squares)), mean, count};
}

State Accumulator::merge_spreads(const State& a, const State& b) {
  const auto times = [&](ValueId x, ValueId y) { return b_.apply(Op::Mul, dtype_, {x, y}); };
  const ValueId count = b_.apply(Op::Add, dtype_, {a[2], b[2]});
  const ValueId share =
      b_.apply(Op::Div, dtype_, {b[2], b_.apply(Op::Max, dtype_, {count, number(1, count)})});
  const ValueId apart = multiply_add(a[1], number(-1, count), b[1]);
  // Each factor by itself, so that a side without points adds 0 however far away the other is.
  const ValueId more = times(times(apart, share), times(apart, a[2]));
  return {b_.apply(Op::Add, dtype_, {b_.apply(Op::Add, dtype_, {a[0], b[0]}), more}),
          multiply_add(apart, share, a[1]), count};
}

State Accumulator::merge_all_spreads(const State& first, std::span<const State> more) {
  const auto times = [&](ValueId x, ValueId y) { return b_.apply(Op::Mul, dtype_, {x, y}); };
  ValueId count = first[2], sum = first[0], apart = number(0, first[1]);
  for (const State& s : more) {
    count = b_.apply(Op::Add, dtype_, {count, s[2]});
    apart = multiply_add(multiply_add(first[1], number(-1, first[1]), s[1]), s[2], apart);
  }
  const ValueId share = b_.apply(
      Op::Div, dtype_, {number(1, count), b_.apply(Op::Max, dtype_, {count, number(1, count)})});
  const ValueId mean = multiply_add(apart, share, first[1]);
  const auto add = [&](const State& s) {
    const ValueId d = multiply_add(mean, number(-1, mean), s[1]);
    sum = multiply_add(times(d, s[2]), d, sum);
  };
  add(first);
  for (const State& s : more) {
    sum = b_.apply(Op::Add, dtype_, {sum, s[0]});
    add(s);
  }
  return {sum, mean, count};
}

State Accumulator::all_spreads(const State& state, const std::function<ValueId(ValueId)>& sum) {
  const auto times = [&](ValueId x, ValueId y) { return b_.apply(Op::Mul, dtype_, {x, y}); };
  const ValueId one_count = sum(state[2]);
  const ValueId count = b_.splat(one_count, b_.type_of(state[0]).lanes);
  const ValueId share =
      b_.apply(Op::Div, dtype_, {state[2], b_.apply(Op::Max, dtype_, {count, number(1, count)})});
  const ValueId one_mean = sum(times(state[1], share));
  const ValueId mean = b_.splat(one_mean, b_.type_of(state[0]).lanes);
  const ValueId apart = multiply_add(mean, number(-1, mean), state[1]);
  const ValueId spread = multiply_add(times(apart, state[2]), apart, state[0]);
  return {sum(spread), one_mean, one_count};
}

State Accumulator::merge(const State& a, const State& b) {
  if (is_spread())
    return merge_spreads(a, b);
  if (watches_nan()) {
    ValueId larger = b_.apply(Op::Lt, DType::Bool, {a[0], b[0]});
    ValueId number = b_.apply(Op::Eq, DType::Bool, {b[1], b[1]});
    return {b_.apply(Op::Select, dtype_, {larger, b[0], a[0]}),
            b_.apply(Op::Select, dtype_, {number, a[1], b[1]})};
  }
  if (monoid_ == Monoid::Linear) {
    // What many maps come to may overflow, which is nothing to a state or a factor of 0.
    const ValueId zero = number(0, a[0]);
    const auto is_zero = [&](ValueId x) { return b_.apply(Op::Eq, DType::Bool, {x, zero}); };
    const auto either = [&](ValueId x, ValueId y) {
      return b_.apply(Op::Or, DType::Bool, {is_zero(x), is_zero(y)});
    };
    return {
        b_.apply(Op::Select, dtype_, {either(a[0], b[1]), b[0], multiply_add(b[1], a[0], b[0])}),
        b_.apply(Op::Select, dtype_,
                 {either(a[1], b[1]), zero, b_.apply(Op::Mul, dtype_, {a[1], b[1]})})};
  }
  if (monoid_ != Monoid::ArgMax)
    return {b_.apply(op_of(monoid_), dtype_, {a[0], b[0]})};
  return choose(better(b, a, true), b, a);
}

State Accumulator::merge_all(const State& first, std::span<const State> more,
                             std::span<const std::vector<Guard>> masks) {
  if (is_spread() && !more.empty()) // of no points where nothing was loaded
    return merge_all_spreads(first, more);
  State all = first;
  for (std::size_t i = 0; i < more.size(); ++i) {
    const State both = merge(all, more[i]);
    all = monoid_ == Monoid::Sum ? both : keep(masks[i], both, all);
  }
  return all;
}

State Accumulator::across_lanes(const State& state) {
  int lanes = b_.type_of(state[0]).lanes;
  if (lanes == 1)
    return state;
  if (is_spread())
    return all_spreads(state, [&](ValueId v) { return b_.reduce_lanes(Monoid::Sum, v); });
  if (watches_nan()) {
    ValueId v = b_.reduce_lanes(Monoid::Max, value(state));
    return {v, v};
  }
  if (monoid_ != Monoid::ArgMax && monoid_ != Monoid::Linear)
    return {b_.reduce_lanes(monoid_, state[0])};
  State best{b_.extract(state[0], 0), b_.extract(state[1], 0)};
  for (int l = 1; l < lanes; ++l)
    best = merge(best, {b_.extract(state[0], l), b_.extract(state[1], l)});
  return best;
}

State Accumulator::keep(const std::vector<Guard>& mask, const State& next, const State& state) {
  if (mask.empty())
    return next;
  const bool by_lane = varies_by_lane(mask);
  return choose(b_.test(mask, by_lane ? b_.type_of(state[0]).lanes : 1), next, state);
}

State Accumulator::across_threads(const State& state, int threads) {
  ensure(monoid_ != Monoid::Linear, "threads combine linear maps, whose order matters");
  if (is_spread())
    return all_spreads(state,
                       [&](ValueId v) { return b_.reduce_threads(Monoid::Sum, v, threads); });
  if (watches_nan()) {
    ValueId v = b_.reduce_threads(Monoid::Max, value(state), threads);
    return {v, v};
  }
  if (monoid_ != Monoid::ArgMax)
    return {b_.reduce_threads(monoid_, state[0], threads)};
  // Of those that have the largest value (NaN is the largest), the lowest place: the largest of the
  // places' negatives.
  ValueId best = b_.reduce_threads(Monoid::Max, state[0], threads);
  ValueId mine = b_.apply(Op::Eq, DType::Bool, {state[0], best});
  if (is_float(dtype_)) {
    ValueId yes = b_.constant(Scalar::of(DType::Bool, std::int64_t(1)));
    auto nan = [&](ValueId v) {
      return b_.apply(Op::Xor, DType::Bool, {b_.apply(Op::Eq, DType::Bool, {v, v}), yes});
    };
    mine = b_.apply(Op::Or, DType::Bool,
                    {mine, b_.apply(Op::And, DType::Bool, {nan(state[0]), nan(best)})});
  }
  ValueId minus = b_.constant(Scalar::of(place_, std::int64_t(-1)));
  ValueId least = b_.constant(identity_of(Monoid::Max, place_));
  ValueId negative =
      b_.apply(Op::Select, place_, {mine, b_.apply(Op::Mul, place_, {state[1], minus}), least});
  ValueId place = b_.reduce_threads(Monoid::Max, negative, threads);
  return {best, b_.apply(Op::Mul, place_, {place, minus})};
}

State Accumulator::up_to_lane(const State& state) {
  const int lanes = b_.type_of(state[0]).lanes;
  State all = state;
  const State none = identity(lanes);
  for (int distance = 1; distance < lanes; distance *= 2) {
    std::vector<int> from;
    for (int l = 0; l < lanes; ++l)
      from.push_back(l < distance ? l : lanes + l - distance);
    State moved;
    for (std::size_t i = 0; i < all.size(); ++i)
      moved.push_back(b_.shuffle(none[i], all[i], from));
    all = merge(moved, all);
  }
  return all;
}

State Accumulator::before_thread(const State& state, int threads) {
  ensure(monoid_ != Monoid::Linear, "threads combine linear maps, whose order matters");
  if (!watches_nan())
    return {b_.scan_threads(monoid_, state[0], threads)};
  const ValueId v = b_.scan_threads(Monoid::Max, value(state), threads);
  return {v, v};
}

Accumulator::InOrder Accumulator::in_order(const State& state, int threads, const Expr& lane) {
  InOrder found{identity(1), state};
  for (int distance = 1; distance < threads; distance *= 2) {
    const ValueId mask = b_.constant(Scalar::of(DType::I32, std::int64_t(distance)));
    State other;
    for (const ValueId part : found.all)
      other.push_back(b_.shuffle_xor(part, mask));
    const Expr bit = floormod(floordiv(lane, Expr(distance)), Expr(2));
    const ValueId behind = b_.test({{bit, Expr(1), Expr(2)}}, 1);
    found.before = choose(behind, merge(other, found.before), found.before);
    found.all = choose(behind, merge(other, found.all), merge(found.all, other));
  }
  return found;
}

State Accumulator::lane_of(const State& state, int lane) {
  State one;
  for (const ValueId part : state)
    one.push_back(b_.extract(part, lane));
  return one;
}

State Accumulator::merge_splat(const State& a, const State& b) {
  const int lanes = std::max(b_.type_of(a[0]).lanes, b_.type_of(b[0]).lanes);
  State x, y;
  for (std::size_t i = 0; i < a.size(); ++i) {
    x.push_back(b_.splat(a[i], lanes));
    y.push_back(b_.splat(b[i], lanes));
  }
  return merge(x, y);
}

ValueId Accumulator::value(const State& state) {
  if (monoid_ == Monoid::ArgMax)
    return state[1];
  if (!watches_nan())
    return state[0];
  ValueId number = b_.apply(Op::Eq, DType::Bool, {state[1], state[1]});
  return b_.apply(Op::Select, dtype_, {number, state[0], state[1]});
}

Value Accumulator::finish(const State& state) {
  DType wanted = e_.region().stages[stage_].yield_dtypes[yield_];
  ValueId v = value(state);
  return e_.convert({v, b_.type_of(v).dtype}, wanted);
}

std::vector<int> Accumulator::workspaces(const Expr& states) {
  std::vector<int> buffers;
  for (const Type& t : types(1))
    buffers.push_back(b_.workspace(fmt::format("partial{}_{}_{}", stage_, yield_, buffers.size()),
                                   t.dtype, states));
  return buffers;
}

State load_state(ProgramBuilder& b, const std::vector<int>& buffers, const Expr& offset, int lanes,
                 const std::vector<Guard>& mask) {
  State state;
  for (int buffer : buffers)
    state.push_back(b.load(buffer, offset, lanes, mask));
  return state;
}

void store_state(ProgramBuilder& b, const std::vector<int>& buffers, const Expr& offset,
                 const State& state, const std::vector<Guard>& mask) {
  for (std::size_t i = 0; i < state.size(); ++i)
    b.store(buffers[i], offset, b.splat(state[i], b.type_of(state[0]).lanes), mask);
}

StateVariables::StateVariables(ProgramBuilder& builder, const State& initial) : b_(&builder) {
  for (ValueId part : initial) {
    variables_.push_back(b_->variable(b_->type_of(part)));
    lanes_.push_back(b_->type_of(part).lanes);
    b_->set(variables_.back(), part);
  }
}

State StateVariables::read() const {
  State state;
  for (VarId v : variables_)
    state.push_back(b_->read(v));
  return state;
}

void StateVariables::write(const State& next) const {
  for (std::size_t i = 0; i < next.size(); ++i)
    b_->set(variables_[i], lanes_[i] == 1 ? b_->extract(next[i], 0) : next[i]);
}

Running identities(Emitter& emitter, const std::vector<int>& stages, const Arithmetic& arithmetic,
                   const Expr& places, int lanes) {
  Running states;
  for (int stage : stages) {
    states.emplace_back();
    for (std::size_t y = 0; y < emitter.region().stages[stage].yields.size(); ++y)
      states.back().push_back(
          Accumulator(emitter, stage, int(y), arithmetic, places).identity(lanes));
  }
  return states;
}

RunningVariables::RunningVariables(ProgramBuilder& builder, const Running& initial) {
  for (const auto& yields : initial) {
    states_.emplace_back();
    for (const State& state : yields)
      states_.back().emplace_back(builder, state);
  }
}

Running RunningVariables::read() const {
  Running running;
  for (const auto& yields : states_) {
    running.emplace_back();
    for (const StateVariables& state : yields)
      running.back().push_back(state.read());
  }
  return running;
}

void RunningVariables::write(const Running& next) const {
  for (std::size_t r = 0; r < next.size(); ++r)
    for (std::size_t y = 0; y < next[r].size(); ++y)
      states_[r][y].write(next[r][y]);
}

} // namespace egret::kernel

// The running combination of values by a monoid: of numbers, or for argmax of pairs of a number and
// its place.
#pragma once

#include "kernel/emit.h"
#include "kernel/target.h"

#include <functional>
#include <span>

namespace egret::kernel {

/// What a reduction of one yield has seen so far, as registers: {value}, {value, place} for argmax,
/// {value, product of the factors} of linear maps, or {sum of squared deviations, mean, count} for
/// a spread that is made beside its mean.
using State = std::vector<ValueId>;

/// What the machine does in one instruction.
struct Arithmetic {
  bool fma = false;     ///< products may be added with one rounding
  bool nan_max = false; ///< the larger of two floats, or NaN when one is NaN
};
Arithmetic arithmetic_of(const Target& target);

class Accumulator {
public:
  /// For one yield of `stage`. Places count up to `places`.
  Accumulator(Emitter& emitter, int stage, int yield, const Arithmetic& arithmetic,
              const Expr& places);

  State identity(int lanes);
  /// The same where each lane is a result of its own, of as many points: one number is the count of
  /// a spread in all lanes.
  State identity_of_columns(int lanes);
  /// What a point alone has.
  State term(const Point& point);
  /// `state` with the yield's value at the point. With `check_mask`, lanes outside of the point's
  /// mask change nothing; else they may.
  State add(const State& state, const Point& point, const Expr& place, bool check_mask);
  /// A point, and the lanes and threads whose value it is.
  struct Member {
    const Point* point;
    std::span<const Guard> own;
  };
  /// Of a spread: `state`, of one lane for all of theirs or of as many as the points, with several
  /// points at once: their mean, then what each is apart from it, by one division.
  State add_together(const State& state, std::span<const Member> members);
  /// `state` in the lanes where `mask` holds, the identity in the others.
  State where(const std::vector<Guard>& mask, const State& state);
  /// `next` where `mask` holds, which may differ by lane and by thread, else `state`.
  State keep(const std::vector<Guard>& mask, const State& next, const State& state);
  /// Both combined, `b` being behind `a`. Of equal values, argmax takes the one whose place is
  /// lower.
  State merge(const State& a, const State& b);
  /// A state with those of `more` that are there, in order: masked loads of states (load_state)
  /// where a mask does not hold.
  State merge_all(const State& first, std::span<const State> more,
                  std::span<const std::vector<Guard>> masks);
  /// The combination of all lanes, in order.
  State across_lanes(const State& state);
  /// The combination over groups of `threads` threads of a GPU's block, of states of one lane. Not
  /// for linear maps, whose order matters: see in_order().
  State across_threads(const State& state, int threads);
  /// Of linear maps: what the threads before this one in its group have, and what all of the group
  /// have. A group is a power of two up to the subgroup, whose lanes all come here; `lane`: the
  /// thread's number in its group. Order of combination: neighbours, pairs, fours and so on.
  struct InOrder {
    State before, all;
  };
  InOrder in_order(const State& state, int threads, const Expr& lane);
  bool is_ordered() const { return monoid_ == Monoid::Linear; }
  /// Not for argmax and spreads. Lane i has the combination of lanes 0 to i: what a lane has is
  /// combined with what the lane 1, 2, 4 ... before it has, in turn.
  State up_to_lane(const State& state);
  /// The combination of what the threads before this one in its group have, of states of one lane:
  /// see IntrinsicId::ScanThreads. Not for argmax, linear maps and spreads.
  State before_thread(const State& state, int threads);
  /// One lane of a state.
  State lane_of(const State& state, int lane);
  /// Both combined, where either may have one lane that stands for all.
  State merge_splat(const State& a, const State& b);
  /// The yield itself, in its own dtype.
  Value finish(const State& state);
  std::vector<Type> types(int lanes) const;

  /// Workspaces with room for `states` states of one lane, one buffer for each of their parts.
  std::vector<int> workspaces(const Expr& states);

private:
  /// Whether NaN is kept beside the maximum of the numbers.
  bool watches_nan() const {
    return monoid_ == Monoid::Max && is_float(dtype_) && !arithmetic_.nan_max;
  }
  /// The value that a state stands for.
  ValueId value(const State& state);
  /// Whether it is a spread beside its mean (Emitter::means): two of them are combined as Chan,
  /// Golub and LeVeque do ("Updating Formulae and a Pairwise Algorithm for Computing Sample
  /// Variances", 1979), of which one point is Welford's case.
  bool is_spread() const { return mean_ >= 0; }
  State add_deviation(const State& state, ValueId x);
  ValueId apart(ValueId x, ValueId from);
  State merge_spreads(const State& a, const State& b);
  /// Many: their mean first, then what each of them is apart from it.
  State merge_all_spreads(const State& first, std::span<const State> more);
  /// All of several spreads, `sum` adding up what each of them has.
  State all_spreads(const State& state, const std::function<ValueId(ValueId)>& sum);
  ValueId multiply_add(ValueId a, ValueId b, ValueId c);
  ValueId number(double x, ValueId like);
  ValueId better(const State& candidate, const State& best, bool ties);
  State choose(ValueId condition, const State& yes, const State& no);

  Emitter& e_;
  ProgramBuilder& b_;
  int stage_, yield_;
  int mean_ = -1; ///< of a spread: the stage that sums for its mean
  Monoid monoid_;
  DType dtype_; ///< of the accumulator's register
  DType place_; ///< of argmax's places
  Arithmetic arithmetic_;
};

/// A state in one buffer for each of its parts.
State load_state(ProgramBuilder& b, const std::vector<int>& buffers, const Expr& offset, int lanes,
                 const std::vector<Guard>& mask = {});
void store_state(ProgramBuilder& b, const std::vector<int>& buffers, const Expr& offset,
                 const State& state, const std::vector<Guard>& mask = {});

/// Registers that hold a state from one turn of a loop to the next.
class StateVariables {
public:
  StateVariables(ProgramBuilder& builder, const State& initial);
  State read() const;
  /// A part that had one lane at first keeps one: all lanes of `next` have the same there.
  void write(const State& next) const;

private:
  ProgramBuilder* b_;
  std::vector<VarId> variables_;
  std::vector<int> lanes_;
};

/// The states of all reductions of a pass: [reduction][yield].
using Running = std::vector<std::vector<State>>;

/// Before anything was added to them.
Running identities(Emitter& emitter, const std::vector<int>& stages, const Arithmetic& arithmetic,
                   const Expr& places, int lanes);

/// Registers for them.
class RunningVariables {
public:
  RunningVariables(ProgramBuilder& builder, const Running& initial);
  Running read() const;
  void write(const Running& next) const;

private:
  std::vector<std::vector<StateVariables>> states_;
};

} // namespace egret::kernel

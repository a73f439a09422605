// Regions that scan along one axis, with maps of what is scanned and of what comes out.
#pragma once

#include "kernel/accumulate.h"
#include "kernel/region.h"

#include <string>
#include <vector>

namespace egret::kernel {

/// Every stage that scans does so along `axis`, and none of them reads what another has made. Maps
/// before them are computed where they are read; all outputs have all of the region's axes, so that
/// the element of an output is made of what the scans have at that very point.
struct ScanForm {
  int axis = 0;
  std::vector<int> outer; ///< the other axes, outermost first
  std::vector<int> scans; ///< stages
  double flops = 1;       ///< of a point, in additions
  /// What is scanned may be combined in any order, not in any grouping alone.
  bool commutes = true;
};

/// The form of a region, or the reason why it has none.
struct FoundScan {
  bool ok = false;
  ScanForm form;
  std::string reason;
};
FoundScan find_scan(const Region& region);

/// The axis of the lanes: one along which all results lie apart and which suits memory better than
/// any other, or the scanned one, whose score (vector_score) is `scanned`.
int lane_axis(const Region& region, const ScanForm& form, std::int64_t scanned);

/// How the axis is cut. Everything follows from the schedule and the shape: neither results nor
/// places in memory depend on the workers.
struct ScanCut {
  Expr piece;    ///< points of a piece, the last one may have fewer; the whole axis: `extent`
  Expr pieces;   ///< of the axis
  Expr together; ///< pieces between one barrier and the next
  Expr groups;   ///< of so many pieces
  bool whole() const { return pieces == Expr(1); }
};
/// `piece` of 0: the axis is not cut. `together` of 0: all pieces.
ScanCut cut_scan(const Expr& extent, std::int64_t piece, std::int64_t together);

/// The pieces of the axis, and where in memory stands what rows have for each. `vector_axis`: the
/// one along which lanes are rows of their own, or the scanned one.
class ScanPieces {
public:
  ScanPieces(const Region& region, const ScanForm& form, const ScanCut& cut, int vector_axis)
      : r_(region), f_(form), cut_(cut), vector_axis_(vector_axis) {}
  Expr begin(const Expr& piece) const;
  Expr end(const Expr& piece) const;
  /// Of the states that rows have for each of `count` numbers; neighbouring rows are neighbours
  /// where they are lanes.
  Expr place(const Point& row, const Expr& count, const Expr& number) const;
  /// Of a piece of a group: it is the last one, and not of the last group.
  std::vector<Guard> ends_group(const Expr& piece, const Expr& group) const;

private:
  const Region& r_;
  const ScanForm& f_;
  const ScanCut& cut_;
  int vector_axis_;
};

/// The states of all scans at one place: [scan][yield].
using ScanStates = Running;

/// The arithmetic of a region's scans, by states of all of them at a time.
class ScanStatesOf {
public:
  ScanStatesOf(Emitter& emitter, const ScanForm& form, const Arithmetic& arithmetic);

  ScanStates identities(int lanes);
  /// What a point adds: identities in the lanes outside of its mask.
  ScanStates terms(const Point& point);
  /// `states` with what a point adds.
  ScanStates add(const ScanStates& states, const Point& point);
  ScanStates merge(const ScanStates& a, const ScanStates& b);
  ScanStates up_to_lane(const ScanStates& states);
  ScanStates last_lane(const ScanStates& states);
  ScanStates across_lanes(const ScanStates& states);
  /// What the threads before this one in its group have, what all of the group have, or both;
  /// `lane`: the thread's number in its group. See Accumulator::in_order() for what does not
  /// commute.
  ScanStates before_thread(const ScanStates& states, int threads, const Expr& lane);
  ScanStates across_threads(const ScanStates& states, int threads, const Expr& lane);
  struct OfThreads {
    ScanStates before, all;
  };
  OfThreads of_threads(const ScanStates& states, int threads, const Expr& lane);
  ScanStates where(const std::vector<Guard>& mask, const ScanStates& states);
  /// Says that the scans have these states at the points, makes all outputs there, and stores them.
  void deliver(const std::vector<Point>& points, const std::vector<ScanStates>& states,
               CachePolicy policy);

  /// One buffer for each part of each state, with room for `states` states.
  using Buffers = std::vector<std::vector<std::vector<int>>>;
  Buffers workspaces(const std::string& name, const Expr& states);
  Buffers shared(const std::string& name, std::int64_t states);
  ScanStates load(const Buffers& buffers, const Expr& offset, int lanes,
                  const std::vector<Guard>& mask = {});
  void store(const Buffers& buffers, const Expr& offset, const ScanStates& states,
             const std::vector<Guard>& mask = {});

  /// Words (IntrinsicId::PublishWord) that a state of one lane takes; state `number` has them from
  /// number * words() on.
  std::int64_t words();
  void publish(int counter, const Expr& number, const ScanStates& states);
  /// Identities where `mask` does not hold.
  ScanStates await(int counter, const Expr& number, const std::vector<Guard>& mask);

private:
  template <class F>
  ScanStates each(F f);
  Buffers buffers(const std::function<int(DType, const std::string&)>& make,
                  const std::string& name);

  Emitter& e_;
  ProgramBuilder& b_;
  const ScanForm& f_;
  std::vector<std::vector<Accumulator>> accumulators_; ///< [scan][yield]
};

} // namespace egret::kernel

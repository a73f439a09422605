// Ends of an unrolled loop: concatenations and sums of what its steps make are made of the values
// of all steps at once.
#pragma once

#include "compiler/additions.h"
#include "compiler/steps.h"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace egret::compiler {

/// Steps that are worth one value of all of them.
inline constexpr std::size_t kLeastSteps = 8;

/// A graph that is made anew: what it was, and what it is so far.
struct Remaking {
  const ir::Graph& before;
  const Additions& additions;        ///< of `before`
  const std::vector<ir::NodeId>& to; ///< by node of `before`
  ir::Graph& out;
  Steps& steps; ///< of `out`
  StepLifter& lifter;
  std::map<ir::NodeId, ir::NodeId> elements; ///< of `out`: equal values that are a scan's elements
};

class StepEnds {
public:
  explicit StepEnds(Remaking& remaking) : r_(remaking), before_(r_.before), out_(r_.out) {}
  /// A choice by position among eight or more parts of one element, padded to the whole, if they
  /// are up to four segments of neighbouring steps.
  std::optional<ir::NodeId> concatenation(ir::NodeId select);
  /// The last of additions of eight or more values of neighbouring steps, padded one behind the
  /// other or not.
  std::optional<ir::NodeId> sum(ir::NodeId last);

private:
  /// Neighbouring parts of a concatenation: of one form, or one part alone.
  struct Segment {
    ir::NodeId first = ir::kNoNode;
    std::int64_t count = 1, direction = 0;
  };
  /// A term of a sum: of a step, or padded to its place along an axis.
  struct Term {
    ir::NodeId value = ir::kNoNode; ///< with the step
    std::size_t number = 0;         ///< among the terms
    std::int64_t step = 0, place = 0;
  };
  void add_part(std::vector<Segment>& segments, ir::NodeId part);
  std::optional<ir::NodeId> as_element(ir::NodeId id);
  bool follows(ir::NodeId first, ir::NodeId part, const Segment& segment);
  ir::NodeId along(ir::NodeId first, std::int64_t count, std::int64_t direction, std::size_t axis);
  ir::NodeId joined(const std::vector<Segment>& segments, std::size_t axis, const Shape& shape);
  std::optional<std::pair<Term, int>> placed_term(ir::NodeId pad, std::size_t number);
  ir::NodeId sum_of_steps(ir::NodeId id, std::int64_t count, std::int64_t direction);

  Remaking& r_;
  const ir::Graph& before_;
  ir::Graph& out_;
};

} // namespace egret::compiler

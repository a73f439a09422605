// What generators ask of a region before they choose loops.
#pragma once

#include "kernel/region.h"
#include "kernel/schedule.h"
#include "kernel/target.h"

#include <optional>
#include <set>
#include <span>

namespace egret::kernel {

/// The condition of a choice by a place: select(index < end, .., ..) of a stage's body.
struct PlaceTest {
  const BodyValue* index; ///< of Kind::Index
  std::int64_t end;
};
std::optional<PlaceTest> place_test(const Stage& stage, const BodyValue& choice);

/// The values of a stage's body that one of them is made of: arguments, or the coordinates of a
/// load.
inline const std::vector<int>& values_read(const Stage& stage, int value) {
  const BodyValue& v = stage.body[std::size_t(value)];
  return v.kind == BodyValue::Kind::Load ? stage.loads[std::size_t(v.load)].indirect : v.args;
}
/// The loads that a value of a stage's body reads, each once.
std::set<int> loads_of(const Stage& stage, int value);

/// The expression with the stage's variables of some region axes set to 0.
Expr without_axes(const Expr& e, const Stage& stage, const std::vector<int>& axes);
/// Whether the value is a sum of a function of some region axes and of one of all others.
bool is_sum_over(const Expr& e, const Stage& stage, const std::vector<int>& axes);

/// Region axes on which value `value` of a stage's body depends, by axis; indirect coordinates
/// count with what they depend on.
std::vector<bool> axes_of_value(const Region& region, const Stage& stage, int value);
/// Region axes on which the element that a load touches depends, by axis.
std::vector<bool> axes_of_load(const Region& region, const Stage& stage, const Load& load);

/// The value of a stage's body that `value` is, seen through conversions.
int through_casts(const Stage& stage, int value);

/// The offset in memory of a load of an operand, over the stage's variables; of an output, over the
/// result axes' variables.
Expr offset_of(const Region& region, const Load& load);
Expr offset_of(const Output& output);
/// A stage's expression over its variables, which stand for `axes`, over the region's axes.
Expr at_axes(const Region& region, const Expr& offset, const std::vector<int>& axes);
/// Elements from one point to the next along region axis `axis`; nothing when that is no constant.
/// 0: the axis does not matter.
std::optional<std::int64_t> stride_of(const Region& region, const Stage& stage, const Load& load,
                                      int axis);
std::optional<std::int64_t> stride_of(const Region& region, const Output& output, int axis);
/// The same, or that of most points where an axis holds several of memory's, as heads beside each
/// other do (64 * (a // 8) + a % 8). Nothing where no stride is that of most points.
std::optional<std::int64_t> usual_stride_of(const Region& region, const Stage& stage,
                                            const Load& load, int axis);
std::optional<std::int64_t> usual_stride_of(const Region& region, const Output& output, int axis);

/// The number that a variable is divided by somewhere in the expression; 0: none.
std::int64_t divisor_of(const Expr& e, const Expr& variable);

/// Arithmetic of one point of the stage, in additions, without what its loads of other stages cost.
double flops_of(const Stage& stage);
/// What the straight code of one point of the stage costs a GPU's compiler, in additions: its
/// arithmetic and loads, and more for operations whose code has a branch for rare operands.
double written_work(const Stage& stage);
/// Stages (each once) that load results of `stage`.
std::vector<int> readers_of(const Region& region, int stage);
/// Whether an output takes `stage`.
bool is_output(const Region& region, int stage);
/// The axis at fixed places of which some map reads another stage's results, over which it does not
/// run; -1: there is none.
int sliced_axis(const Region& region);
/// Whether a stage sorts: such regions have a generator of their own.
bool sorts(const Region& region);

/// How well vectors along `axis` suit the loads and outputs of the stages: bytes an element that
/// are contiguous, less four times those that would have to be gathered. Loads of lanes that are
/// two to four elements apart count nothing. What does not vary along loops over the axes `inner`
/// inside of the vectors is loaded once for all their points, and counts that much less.
double vector_score(const Region& region, std::span<const int> stages, int axis,
                    std::span<const int> inner = {});
/// Lanes of a vector in which the widest values that the stages compute fit the target's registers.
int lanes_for(const Region& region, std::span<const int> stages, std::int64_t vector_bytes);

/// Streaming for results of regions that are much larger than the caches, so that the next kernel
/// could not find them there.
CachePolicy usual_store_policy(const Region& region, const Target& target);

/// An extent's size for decisions: the largest constant that it is known not to exceed, at most
/// 2^40.
std::int64_t about(const Expr& e);
/// Points of a box; the product of extents.
Expr points_of(const Region& region, std::span<const int> axes);
bool contains(std::span<const int> axes, int axis);
bool is_empty(const Region& region, std::span<const int> axes); ///< some extent is 0

} // namespace egret::kernel

// Regions that go through products without storing them: which axes are rows, which is gone along,
// and what is summed in which pass.
#pragma once

#include "kernel/contraction_form.h"
#include "kernel/target.h"

#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

/// A value of the rows on which it depends that masked terms are neutral: taken to be a number
/// with -inf + value = -inf (Add), 0 * value = 0 (Mul), or 0 / value = 0 (Div).
struct RowCondition {
  int stage = -1, value = -1; ///< of the stage's body
  Op op = Op::Add;
  /// Where it does not hold, masked terms are no numbers; else they may be neutral all the same.
  bool certain = true;
  friend bool operator==(const RowCondition&, const RowCondition&) = default;
};

/// A value of a stage's body, a test of indices, that is known where a bound is not negative.
struct BoundTest {
  int stage = -1, value = -1;
  std::size_t bound = 0; ///< in StreamForm::bounds
  bool holds = false;    ///< the value where the bound is 0 or more
};

struct StreamForm {
  AxisGroup batch, rows, places;
  /// score[batch, row, place] = sum over depth of left[batch, row, depth] * right[batch, place,
  /// depth], made anew for every tile.
  std::vector<ContractionForm> products;
  /// sum over places of left[batch, row, place] * right[batch, place, column], the left side being
  /// made of scores: the columns are the form's depth, the places its columns.
  std::vector<ContractionForm> sums;
  std::vector<int> row_stages; ///< reductions over the places that leave one value a row
  int passes = 0;              ///< over the places
  std::vector<int> level;      ///< by stage: the pass that makes its result
  /// Sums in the pass of a maximum of which a larger maximum changes the scale only: by stage of
  /// the sum, that of the maximum; -1 for all others.
  std::vector<int> scaled_by;
  /// Over the region's axes: where one of them is negative, a point adds nothing to any sum.
  std::vector<Expr> bounds;
  std::vector<BoundTest> tests; ///< that the bounds come from
  /// What the bounds take for granted of the rows. Not of the places: what is masked there is not
  /// looked at.
  std::vector<RowCondition> conditions;
  DType element = DType::BF16; ///< of all factors, with StreamTakes::MatrixUnits
};

/// What a generator of streams can do. MatrixUnits: factors of one 16-bit type, those on the right
/// being loaded as they are; a factor on the left may be rounded to it with a scale that is not the
/// final one. Vectors: factors of any float that is summed in f32. RoundedVectors: the same, and
/// roundings as for MatrixUnits.
enum class StreamTakes : std::uint8_t { MatrixUnits, Vectors, RoundedVectors };

struct FoundStream {
  bool ok = false;
  StreamForm form;
  std::string reason;
};
FoundStream find_stream(const Region& region, StreamTakes takes = StreamTakes::MatrixUnits);

/// The region with quotients taken out of sums: what divides each term of a sum, and is itself the
/// sum of exp(x - m) over the same points, m being the largest x, divides the result instead. Such
/// a divisor is at least 1, or no number, or there are no terms. What is then summed may wait for
/// the maximum only, so that one pass makes it. Not for Vectors: also quotients that are rounded to
/// 16 bits, as rounding the dividend has the same relative error; and a sum in f32 that is rounded
/// to 16 bits and then used in f32 is not rounded, which is the more exact result.
Region prepared_for_stream(const Region& region, StreamTakes takes = StreamTakes::Vectors);

/// The places of a pass's products and sums: stages that a stage's value is made of, at the same
/// point.
std::vector<bool> stages_under(const Region& region, int stage);

/// What one pass along the places does.
struct StreamPass {
  std::vector<int> rows;             ///< row stages
  std::vector<std::size_t> sums;     ///< in StreamForm::sums
  std::vector<std::size_t> products; ///< in StreamForm::products: those that it makes
};
StreamPass stream_pass(const Region& region, const StreamForm& form, int number);

/// By output: the sum in StreamForm::sums that it is made of, -1 for values of the rows.
std::vector<int> sums_of_outputs(const Region& region, const StreamForm& form);

/// Whether a value of a stage's body reads the result of stage `other`, by way of maps, too.
bool depends_on_stage(const Region& region, int stage, int value, int other);

/// Fills StreamForm::bounds and conditions.
void find_bounds(const Region& region, const std::vector<int>& reductions, StreamForm& form);

/// Whether the terms of the sum `stage` are the squares of x - m, x being the terms of the sum
/// `sum` and m their mean: over the same axes, in f32.
bool is_spread_of(const Region& region, int stage, int sum);

/// Whether the terms of the sum `stage` are exp(x - m) times something, m being the result of stage
/// `maximum`, that of x: when m becomes m', what was summed is scaled by exp(m - m'). `alone`:
/// times nothing. `through_maps`: also where maps of the same points stand between. `rounded`: also
/// where exp(x - m) is rounded to 16 bits.
bool is_scaled_by(const Region& region, int stage, int maximum, bool alone = false,
                  bool through_maps = false, bool rounded = false);

} // namespace egret::kernel

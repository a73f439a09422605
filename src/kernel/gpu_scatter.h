// Scatters by one index on a GPU: what their ways share, and the ways that use atomic operations or
// compare few updates.
#pragma once

#include "kernel/analysis.h"
#include "kernel/gpu_nest.h"
#include "kernel/gpu_radix.h"
#include "kernel/scatter_form.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace egret::kernel {

/// A program of a scatter on its way.
class GpuScatter {
protected:
  GpuScatter(const Region& region, const ScatterForm& form, int threads)
      : r_(region), f_(form), threads_(threads), b_(region.name), e_(b_, region),
        thread_(thread_variable(threads)), whole_(writes_whole_output(region, form)) {}

  bool empty() const { return is_empty(r_, result_axes(r_.stages[std::size_t(f_.stage)])); }
  /// Of the grid.
  void barrier();
  /// All points, distributed over the threads of the grid, or over groups of so many of them.
  void points(const Expr& count, const std::function<void(const Expr&)>& body, int group = 1);
  /// The same of a number that the program finds, which the launch cannot depend on.
  void found_points(const Expr& count, const std::function<void(const Expr&)>& body, int group = 1);
  /// Numbers below `count`, shared out among the threads of a block: in order, with a mask where
  /// not all threads have one.
  void each_of_block(std::int64_t count,
                     const std::function<void(const Expr&, const std::vector<Guard>&)>& body);
  KernelProgram finish();
  /// Combines an element of the output, where it was updated, with its state. Ways that do so for
  /// all elements that there are, in any order, each once, call this: where updates are many
  /// (writes_whole_output), the program then reads the data from their operand and writes the
  /// output whole, so that nothing has to be copied before. `mask`: where the element is there.
  void combine_with_output(const Expr& element, const std::vector<Guard>& updated,
                           const std::vector<Guard>& mask, const std::function<ValueId()>& state);

  ValueId identity() { return b_.constant(identity_of(*f_.monoid, f_.state)); }
  /// Whether a bool holds, or does not, as a condition.
  Guard holds(ValueId test, bool so = true) {
    return {value_symbol(b_.cast(test, DType::I32)), Expr(so), Expr(so) + Expr(1)};
  }
  /// Columns of a grid that is divided by them: at least one.
  Expr columns() const {
    return f_.column_count.lower() >= 1 ? f_.column_count : max(f_.column_count, Expr(1));
  }

  const Region& r_;
  const ScatterForm& f_;
  int threads_;
  ProgramBuilder b_;
  Emitter e_;
  Expr thread_;
  int counter_ = -1; ///< of the barrier of the grid
  Expr blocks_ = Expr(1);
  bool whole_; ///< combine_with_output() writes the output whole
};

/// Whether neighbours along an axis are neighbours in what a stage loads, for the most of it.
bool goes_along(const Region& region, const Stage& stage, int axis);

/// What ways share that take all updates in any order. Updates are numbered in row-major order of
/// the stage's axes, so that threads beside each other read neighbours; a thread has the updates of
/// all places along the axis of a choice.
class UnorderedScatter : protected GpuScatter {
protected:
  UnorderedScatter(const Region& region, const ScatterForm& form, int threads, int together);

  struct Update {
    Point point;
    Expr bin, column;        ///< of its element
    std::vector<Guard> mask; ///< where it exists and has an element
  };

  /// Along the axis of a choice.
  std::int64_t places() const;
  Expr update_points() const { return points_of(r_, axes_); }
  /// The coordinates along some axes as one number.
  Expr number_along(const std::vector<int>& axes, const Point& p) const;
  /// Appends the updates of a number.
  void append_updates(std::vector<Update>& to, const Expr& flat, const std::vector<Guard>& mask);
  /// Some updates at a time of [first, end).
  void several(const Expr& first, const Expr& end, bool masked,
               const std::function<void(const std::vector<Update>&)>& body);
  /// All updates, by the threads of the grid.
  void all_updates(const std::function<void(const std::vector<Update>&)>& body);

  /// Number of an element among those of all columns.
  Expr element_number(const Update& u) const { return u.bin * f_.column_count + u.column; }
  Expr elements() const { return f_.bins * f_.column_count; }
  /// All elements that updates may go to, by the threads of the grid: number, bin, and a point of
  /// the column.
  void all_elements(const std::function<void(const Expr&, const Expr&, const Point&)>& body);

  ValueId number(DType dtype, std::int64_t value) { return b_.constant(Scalar::of(dtype, value)); }
  ValueId apply(Op op, ValueId x, ValueId y) { return b_.apply(op, b_.type_of(x).dtype, {x, y}); }
  ValueId equal(ValueId x, ValueId y) { return b_.apply(Op::Eq, DType::Bool, {x, y}); }
  ValueId less(ValueId x, ValueId y) { return b_.apply(Op::Lt, DType::Bool, {x, y}); }
  ValueId both(ValueId x, ValueId y) { return b_.apply(Op::And, DType::Bool, {x, y}); }
  ValueId select(ValueId test, ValueId yes, ValueId no) {
    return b_.apply(Op::Select, b_.type_of(yes).dtype, {test, yes, no});
  }

  int together_;          ///< numbers of a thread whose updates are fetched together
  std::vector<int> axes_; ///< by which updates are numbered
  std::vector<Expr> extents_;
};

/// Updates that are combined exactly, in whatever order: integers.
/// Why a scatter's are not; empty when they are.
std::string refused_atomics(const ScatterForm& form, const Region& region, const Target& target);

/// Each block combines its updates in tables in its shared memory, `copies` of each element side by
/// side, and then the tables with the output.
struct TableShape {
  int threads = 512;
  std::int64_t groups = 1; ///< of updates, one for a block
  int copies = 1;          ///< a power of two: threads beside each other use different ones
  int together = 8;        ///< updates of a thread that are fetched together
};
/// Bytes of one copy of a block's tables; 0: it is not known how many elements there are.
std::int64_t table_bytes(const ScatterForm& form, const Region& region);
std::string refused_tables(const ScatterForm& form, const Region& region, const TableShape& shape,
                           const Target& target);
KernelProgram scatter_by_tables(const Region& region, const ScatterForm& form,
                                const TableShape& shape);

/// Each update is combined with the output itself.
KernelProgram scatter_by_atomics(const Region& region, const ScatterForm& form, int threads,
                                 int together);

/// The last update stays: a table has the greatest number of an update to each element.
std::string refused_last(const ScatterForm& form, const Target& target);
KernelProgram scatter_last(const Region& region, const ScatterForm& form, int threads,
                           int together);

/// The updates' numbers are sorted by their element, and neighbours combined, in their order.
struct SortedShape {
  RadixShape sort;
  int chunk = 64;   ///< sorted updates that a thread combines
  int together = 8; ///< of them that are fetched together
};
std::string refused_sorted(const ScatterForm& form, const RadixShape& shape);
KernelProgram scatter_by_sorting(const Region& region, const ScatterForm& form,
                                 const SortedShape& shape);

/// Few updates: each is compared with all others, and the first one to an element combines those
/// behind it.
inline constexpr std::int64_t kMostFewUpdates = 1 << 13;
std::string refused_few(const ScatterForm& form);
KernelProgram scatter_few(const Region& region, const ScatterForm& form, int threads);

/// A thread combines the updates of a column, in their order, with the output itself, or each of
/// several `owners` those of its elements: finding out that an update is another's costs the same
/// for all of an owner's columns.
struct ColumnShape {
  int threads = 256;
  int together = 4; ///< updates that are fetched together by one owner
  int owners = 1;   ///< a power of two: whose an update is, is then one instruction
  int columns = 1;  ///< of an owner, as far apart as there are others
};
std::string refused_columns(const ScatterForm& form, const ColumnShape& shape);
KernelProgram scatter_by_columns(const Region& region, const ScatterForm& form,
                                 const ColumnShape& shape);

/// A warp combines the updates of a column, as many at a time as it has lanes, in their order, with
/// the output itself.
std::string refused_warps(const ScatterForm& form, const Region& region);
KernelProgram scatter_by_warps(const Region& region, const ScatterForm& form, int threads,
                               int together);

/// Few updates of many columns, whose neighbours in memory are the updates of a column: a block
/// sorts the updates by their element once, for all of its columns, and combines those of
/// `together` columns at a time, which it has brought to shared memory.
struct ListShape {
  int threads = 256;
  std::int64_t groups = 1; ///< of columns, one for a block
  int together = 1;
};
inline constexpr std::int64_t kMostListBins = 1 << 13;
std::string refused_lists(const ScatterForm& form, const ListShape& shape);
/// The shape that suits a scatter; nothing where memory is read otherwise.
std::optional<ListShape> list_shape(const ScatterForm& form, const Region& region, int threads,
                                    const Target& target);
KernelProgram scatter_by_lists(const Region& region, const ScatterForm& form,
                               const ListShape& shape);

/// Columns with indices of their own: a block has tables of all elements of `lines` neighbouring
/// columns in its shared memory, and brings the updates to them as they lie in memory, `together`
/// for each lane of a warp that has a column.
struct LineShape {
  int threads = 256;
  std::int64_t lines = 8; ///< a multiple of the warps
  int together = 4;
};
std::string refused_lines(const ScatterForm& form, const LineShape& shape, const Target& target);
KernelProgram scatter_by_lines(const Region& region, const ScatterForm& form,
                               const LineShape& shape);

/// Floats by integers that stand for them. Maxima: integers in the same order. Sums of f32, so that
/// they do not depend on their order (after Demmel and Nguyen, "Fast Reproducible Floating-Point
/// Summation", 2013): the updates of an element are rounded to multiples of one number, which
/// follows from the largest exponent among them, and added as integers of 64 bits. An update is
/// rounded by at most 2^-31 of the largest one to its element, and by less if there are fewer than
/// 2^29 of them.
std::string refused_integers(const ScatterForm& form, const Target& target);
KernelProgram scatter_by_integers(const Region& region, const ScatterForm& form, int threads,
                                  int together);

/// Sums of rows of f32: updates are put into buckets by their element, in any order, and `lanes`
/// threads, each with some columns, add up the updates of an element in f64. Where that may round,
/// so that the sum would follow from the order, they are added again by the integers of above.
/// Of an element with more updates than a bucket holds, parts are added in memory.
struct RowShape {
  int threads = 512;
  int lanes = 32;           ///< that have the columns of an element: a power of two
  int columns = 1;          ///< of a lane
  int together = 4;         ///< updates that are fetched together
  std::int64_t bucket = 32; ///< updates that an element's bucket holds
};
/// The shape that suits a scatter.
RowShape row_shape(const Region& region, const ScatterForm& form);
std::string refused_rows(const ScatterForm& form, const RowShape& shape, const Target& target);
KernelProgram scatter_by_rows(const Region& region, const ScatterForm& form, const RowShape& shape);

} // namespace egret::kernel

// Sums of f32 in fixed point, which do not depend on the order of their terms: what is done to an
// update and to a sum (see scatter_by_integers).
#pragma once

#include "kernel/gpu_scatter.h"

namespace egret::kernel {

/// A scatter that adds integers of 64 bits to the sums of elements. The exponent of the largest
/// update of an element, its peak, says what a sum's last bit is worth.
class FixedPointScatter : protected UnorderedScatter {
protected:
  FixedPointScatter(const Region& region, const ScatterForm& form, int threads, int together);

  /// Of an update, an i32 of at least 1 as floats store it: that of all numbers below the smallest
  /// normal one.
  ValueId exponent(ValueId value);
  /// What an update adds to a sum, by the element's peak.
  ValueId to_fixed(ValueId value, ValueId peak);
  ValueId from_fixed(ValueId sum, ValueId peak);
  /// Where an element with a peak was updated: peaks are 0 before.
  static std::vector<Guard> is_updated(ValueId peak) {
    return {{value_symbol(peak), Expr(1), Expr(kSpecial + 1)}};
  }

  /// An update of an element that a block has in its tables.
  struct Placed {
    Expr slot; ///< of its element in the tables
    ValueId value;
    std::vector<Guard> mask; ///< where it exists and its element is the block's
  };
  /// Hands all updates of a block, some at a time, to what it is given.
  using Updates = std::function<void(const std::function<void(const std::vector<Placed>&)>&)>;
  /// Gives a block shared memory for the peaks and sums of `slots` elements.
  void make_tables(std::int64_t slots);
  /// Makes them of a block's updates, which are gone through twice: for peaks, then for sums.
  void fill_tables(const Updates& updates);

  int peaks_ = -1, sums_ = -1; ///< in shared memory or in a workspace
  /// The exponent of infinities and NaNs. Their sum has the number of positive infinities below
  /// bit kNegative and that of negative ones from there on; a NaN counts as both.
  static constexpr std::int64_t kSpecial = 255, kNegative = 31;

  ValueId minus(ValueId x) { return apply(Op::Mul, x, number(b_.type_of(x).dtype, -1)); }

private:
  ValueId power(ValueId exponent);
  ValueId shift_of(ValueId peak);

  int bits_; ///< of an update in fixed point
  std::int64_t slots_ = 0;
};

inline constexpr std::int64_t kFixedBytes = 12; ///< of an element's peak and sum

/// Each block has peaks and sums of some columns, or of a share of one's elements, in its shared
/// memory.
struct FixedLineShape {
  int threads = 512;
  std::int64_t lines = 1;  ///< columns of a block
  std::int64_t shares = 1; ///< of a column's elements, one for a block
  int together = 4;        ///< updates of a thread that are fetched together
};
std::string refused_fixed_lines(const ScatterForm& form, const FixedLineShape& shape,
                                const Target& target);
/// The shape that gives each multiprocessor a block; nothing where columns are too few or too long.
std::optional<FixedLineShape> fixed_line_shape(const ScatterForm& form, const Region& region,
                                               const Target& target);
KernelProgram scatter_by_fixed_lines(const Region& region, const ScatterForm& form,
                                     const FixedLineShape& shape);

/// Updates are put into partitions first, one for each range of elements whose peaks and sums a
/// block's shared memory holds.
struct PartitionShape {
  int threads = 1024;
  std::int64_t range = 4096; ///< elements of a partition
  int together = 4;          ///< updates of a thread that are fetched together
  int each = 4;              ///< the same of a partition's
};
/// The shape that gives each multiprocessor one block and as many partitions as the others; nothing
/// where not all have one.
std::optional<PartitionShape> partition_shape(const ScatterForm& form, const Target& target);
std::int64_t partitions_of(const ScatterForm& form, const PartitionShape& shape);
std::string refused_partitions(const ScatterForm& form, const PartitionShape& shape,
                               const Target& target);
KernelProgram scatter_by_partitions(const Region& region, const ScatterForm& form,
                                    const PartitionShape& shape);

} // namespace egret::kernel

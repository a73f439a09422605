// An estimate of how long rows by groups of a GPU's threads take: what ranks the schedules of
// `gpu_rows`.
#pragma once

#include "kernel/gpu_row_facts.h"
#include "kernel/schedule.h"

#include <vector>

namespace egret::kernel {

/// Where what is read once is kept from pass to pass.
enum class RowKeep : std::int64_t { Registers, Shared, Nowhere };

/// What the passes over a region's rows do, whatever the schedule.
class RowTime {
public:
  /// `facts`: of the region as it is lowered.
  RowTime(const Region& region, RowFacts facts, const Target& target);

  /// Of a launch with parameters of `gpu_rows` that lower; sums of columns are not counted.
  double seconds(const Schedule& schedule) const;

private:
  /// An operand that stages read along the rows.
  struct Read {
    int operand = 0;
    double bytes = 4;   ///< of an element
    double stride = 1;  ///< elements between neighbours in a row
    bool by_row = true; ///< else all rows read the same
    friend bool operator==(const Read&, const Read&) = default;
  };
  /// Of one point; `fresh`: what no earlier pass has made.
  struct Pass {
    double flops = 0, fresh_flops = 0;
    std::vector<Read> reads, fresh_reads;
    double stored_bytes = 0; ///< of all its outputs
    int outputs = 0;
    double states = 0, state_parts = 0; ///< of its reductions; `parts`: values of 32 bits
  };
  struct Shape;
  Shape shape_of(const Schedule& schedule) const;
  void describe();

  const Region& region_;
  const Target& target_;
  RowFacts facts_;
  std::vector<Pass> passes_;
  double rows_ = 1, row_elements_ = 1;
  double width_ = 1;        ///< 32-bit registers of a value
  double read_bytes_ = 0;   ///< of a row
  double stored_bytes_ = 0; ///< of a row
  double point_outputs_ = 0;
};

} // namespace egret::kernel

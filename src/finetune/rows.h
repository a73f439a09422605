// Samples in rows of one length, several in a row.
#pragma once

#include "egret/finetune.h"
#include "egret/tensor.h"

#include <cstdint>
#include <span>
#include <vector>

namespace egret::finetune {

inline constexpr std::int64_t kNotLearnt = -100; ///< a target that the loss passes over

/// Some rows as i64 tensors [rows, length]. A sample of n tokens takes n - 1 places.
struct Batch {
  Tensor tokens;    ///< 0 behind the last sample
  Tensor targets;   ///< the token that follows, or kNotLearnt
  Tensor positions; ///< in the sample, from 0
  Tensor texts;     ///< the number of the sample in its row, from 0; -1 behind the last one
};

class Rows {
public:
  /// Best-fit decreasing: the longest sample first, each into the fullest row that has room for it.
  /// Samples have 2 to `length` tokens.
  Rows(std::span<const Sample> samples, std::int64_t length);

  std::int64_t size() const noexcept { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t length() const noexcept { return length_; }
  std::int64_t learnt() const noexcept { return learnt_; } ///< targets in all rows
  /// The rows with these numbers; -1 stands for a row without a sample.
  Batch batch(std::span<const std::int64_t> numbers) const;

private:
  std::vector<Sample> samples_;
  std::vector<std::vector<std::size_t>> rows_; ///< samples of each
  std::int64_t length_, learnt_ = 0;
};

/// The rows of step `step` of a training: those of one epoch after the other, each in an order of
/// its own that follows from the seed.
std::vector<std::int64_t> rows_of_step(std::int64_t step, std::int64_t batch, std::int64_t rows,
                                       std::uint64_t seed);

} // namespace egret::finetune

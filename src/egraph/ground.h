// Rows of ground terms: terms without variables, which are looked up before matching.
#pragma once

#include "egraph/engine.h"

#include <cstdint>
#include <vector>

namespace egret::egraph {

/// Looks up each ground term of a forest when it is first asked for. Tables must not change
/// meanwhile.
class GroundRows {
public:
  /// Rows that are newer than time `snapshot` are not there.
  GroundRows(const Engine& engine, const Forest& forest, std::uint32_t snapshot = kNow)
      : engine_(engine), forest_(forest), snapshot_(snapshot) {}
  /// The row of the term, or Table::kNone.
  std::uint32_t row(std::uint32_t ground);
  /// What is in the register of the term, if that has a row; 0 if not or if it was not asked for.
  Value value(std::uint32_t ground) const {
    return ground < found_.size() ? found_[ground].value : 0;
  }

private:
  struct Found {
    bool asked = false;
    std::uint32_t row = Table::kNone;
    Value value = 0;
  };
  /// Looks the term up; those in its key were.
  void look_up(std::uint32_t ground);

  const Engine& engine_;
  const Forest& forest_;
  std::uint32_t snapshot_;
  std::vector<Found> found_;
  std::vector<Value> key_;
};

} // namespace egret::egraph

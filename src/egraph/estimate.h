// How many rows a lookup is expected to find: from samples of the columns that are joined.
#pragma once

#include "egraph/engine.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace egret::egraph {

/// A column of a function's table.
struct TableColumn {
  std::uint32_t function = 0;
  std::uint32_t column = 0;
};

/// Estimates for one planning: tables must not change in between.
class Estimates {
public:
  explicit Estimates(const Engine& engine) : engine_(engine), samples_(engine.tables.size()) {}

  /// Rows found in `target` for a value that a row of `source` holds: the mean over those rows, so
  /// that a value which many of them hold counts as often as it is looked up.
  double rows_found(TableColumn source, TableColumn target);
  /// Rows found in `target` for this value.
  double rows_found(Value value, TableColumn target);

private:
  struct Sample {
    std::vector<Value> values; ///< sorted; of live rows, one of so many neighbours
    double rows_each = 0;      ///< live rows that one of them stands for; 0: not taken yet
  };
  const Sample& sample(TableColumn at);

  const Engine& engine_;
  std::vector<std::vector<Sample>> samples_; ///< per function and column
  std::unordered_map<std::uint64_t, double> found_;
};

} // namespace egret::egraph

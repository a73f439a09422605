// Sums that are written as additions of two values, one after the other.
#pragma once

#include "egret/ir.h"

#include <vector>

namespace egret::compiler {

class Additions {
public:
  explicit Additions(const ir::Graph& graph);

  const std::vector<ir::NodeId>& users(ir::NodeId id) const { return users_[id]; }
  bool is_output(ir::NodeId id) const { return is_output_[id]; }
  /// Nothing but another addition reads it.
  bool is_inner(ir::NodeId id) const;
  /// Whether it adds floats and is no inner one.
  bool is_last(ir::NodeId id) const;
  /// What the last one adds up, through inner ones, from left to right.
  std::vector<ir::NodeId> terms(ir::NodeId last) const;

private:
  const ir::Graph& graph_;
  std::vector<std::vector<ir::NodeId>> users_;
  std::vector<bool> is_output_;
};

} // namespace egret::compiler

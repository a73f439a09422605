// Numbers of a launch (workers, bytes) that may depend on the dims in the argument block.
#pragma once

#include "egret/expr.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace egret::backend {

/// An expression over a kernel's dims, with constants found once.
class LaunchNumber {
public:
  LaunchNumber(Expr e, const std::vector<Expr>& dims);
  /// `values` by dim of the kernel.
  std::int64_t at(const std::int64_t* values) const {
    return constant_ ? *constant_ : find(values);
  }

private:
  std::int64_t find(const std::int64_t* values) const;
  std::optional<std::int64_t> constant_;
  Expr expr_ = 0;
  std::vector<Expr> dims_;
};

} // namespace egret::backend

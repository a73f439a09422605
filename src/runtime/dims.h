// The values of symbolic dims in one run: bound by the shapes of inputs, checked against what the
// plan relies on.
#pragma once

#include "egret/index_map.h"
#include "kernel/plan.h"
#include "runtime/program.h"

#include <cstdint>
#include <span>
#include <vector>

namespace egret::runtime {

class DimValues {
public:
  /// `inputs` are the graph's declared inputs. Error(Shape) when a size contradicts a symbol.
  DimValues(const ir::Graph& graph, const kernel::Plan& plan, std::span<const RunInput> inputs);

  std::int64_t operator()(const Expr& e) const;
  const std::vector<std::int64_t>& values() const noexcept { return values_; } ///< by Plan::dims

private:
  const kernel::Plan& plan_;
  std::vector<std::int64_t> values_;
};

} // namespace egret::runtime

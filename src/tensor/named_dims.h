// The sizes of a compiled function's arguments that may differ from call to call.
#pragma once

#include "egret/compile.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace egret::detail {

class NamedDims {
public:
  /// Error(Value) for a dim whose facts contradict each other, naming it.
  explicit NamedDims(std::vector<NamedDim> dims);

  bool empty() const noexcept { return dims_.empty(); }
  /// Whether calls must be flattened with paths.
  bool by_path() const noexcept;

  /// The shapes of a call's leaves as a trace sees them: with a symbol for each named dim whose
  /// size lies in a bucket.
  class Seen {
  public:
    /// Of leaf i, which is a tensor.
    const Shape& shape(const Call& call, std::size_t i) const {
      const auto own = with_symbols.find(i);
      return own == with_symbols.end() ? call.leaves[i].tensor->shape() : own->second;
    }
    std::map<std::size_t, Shape> with_symbols; ///< by leaf; the others have their own
    std::string alone;       ///< why a dim has its size only: "tokens is 700, outside 1 to 512"
    std::vector<Expr> sizes; ///< by dim: its symbol, or the one size
  };
  /// Error(Shape) when a dim has several sizes, Error(Axis) for an axis that a tensor lacks,
  /// Error(Value) for a place that holds no tensor.
  Seen seen(const Call& call) const;
  /// What a trace of these shapes serves: "batch 1 to 8, tokens 700 only".
  std::string range(const Seen& seen) const;

private:
  Expr stands_for(const NamedDim& dim, std::int64_t size, std::string& alone) const;
  std::vector<NamedDim> dims_;
};

} // namespace egret::detail

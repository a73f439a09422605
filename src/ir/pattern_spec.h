// What a Pattern is made of.
#pragma once

#include "egret/pattern.h"

#include <optional>

namespace egret::pattern {

/// One token of a shape: a letter, a size, or anything.
struct DimToken {
  char letter = 0;        ///< 0: no letter
  std::int64_t size = -1; ///< -1: any size
};

struct Spec {
  enum class Kind { Any, Node, Constant, Viewed, OneOf };
  Kind kind = Kind::Any;
  std::vector<Op> ops;           ///< Node: one of these
  std::vector<Pattern> operands; ///< Node: operands; Viewed: what is read; OneOf: the alternatives
  std::optional<double> value;   ///< Constant
  std::string name;
  bool has_shape = false, has_batch = false;
  std::vector<DimToken> dims;
  std::string broadcast, varies; ///< letters
  std::optional<std::string> over;
  std::optional<DType> dtype;
  bool single_use = false, ordered = false;
  std::vector<std::function<bool(const Graph&, NodeId)>> where;

  /// The place of a letter among the last dims of a node that fits shape(); -1 when shape() has no
  /// such letter.
  int place_of(char letter) const;
};

} // namespace egret::pattern

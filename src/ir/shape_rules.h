// Shape and dtype of a node from its operands and attributes.
#pragma once

#include "egret/ir.h"

#include <span>

namespace egret::ir {

/// Which fields of Attrs an op uses, as bits.
enum AttrField : unsigned {
  kAttrDType = 1,
  kAttrValue = 2,
  kAttrShape = 4,
  kAttrBefore = 8,
  kAttrAfter = 16,
  kAttrAxes = 32,
  kAttrInput = 64, ///< name, slot, by_value
};
unsigned attrs_of(Op op) noexcept;

struct Inferred {
  DType dtype;
  Shape shape;
};

/// Throws egret::Error naming the op, what it was given and the rule when they do not fit.
Inferred infer(Op op, std::span<const Node* const> operands, const Attrs& attrs);

} // namespace egret::ir

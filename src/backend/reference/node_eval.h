// One node of the graph on arrays: one function for each class of ops.
#pragma once

#include "backend/reference/estimate.h"
#include "backend/reference/host_array.h"
#include "egret/ir.h"

#include <cmath>
#include <span>
#include <vector>

namespace egret::backend::reference {

/// An array while the graph is executed: with or without error bounds.
struct Cells {
  HostArray array;
  std::vector<double> errors; ///< by element, or empty

  Cells(DType type, Dims dims, bool with_errors) : array(type, std::move(dims)) {
    if (with_errors)
      errors.assign(static_cast<std::size_t>(array.size()), 0);
  }
  DType dtype() const { return array.dtype; }
  const Dims& dims() const { return array.dims; }
  std::int64_t size() const { return array.size(); }
  bool has_errors() const { return !errors.empty(); }

  Estimate at(std::int64_t element) const {
    return {array.at(element), errors.empty() ? 0 : errors[static_cast<std::size_t>(element)]};
  }
  Estimate at(const Dims& point) const { return at(number_of_point(array.dims, point)); }
  void set(std::int64_t element, const Estimate& e) {
    array.set(element, e.value);
    if (!errors.empty())
      errors[static_cast<std::size_t>(element)] = e.error;
  }
};

using Operands = std::span<const Cells* const>;

class Terms; // terms.h

/// Each fills `result`, which has the node's dtype and dims. `bindings` gives the values of
/// symbolic attributes; `terms`, in row-major order, are what is stored or, of dtype `from`,
/// reduced.
void eval_source(const ir::Node& node, Cells& result);
void eval_elementwise(Terms& terms, Cells& result);
void eval_reduce(const ir::Node& node, DType from, Terms& terms, Cells& result);
void eval_scan(const ir::Node& node, Operands operands, Cells& result);
void eval_sort(const ir::Node& node, Operands operands, Cells& result);
void eval_gather(const ir::Node& node, Operands operands, Cells& result);
void eval_scatter(const ir::Node& node, Operands operands, Cells& result);
void eval_movement(const ir::Node& node, Operands operands, const Bindings& bindings,
                   Cells& result);

/// The positions of integer keys in ascending order, equal ones in the order of their positions;
/// with unknown errors when a key is in doubt.
std::vector<Estimate> order_of(std::span<const Estimate> keys, DType dtype);

} // namespace egret::backend::reference

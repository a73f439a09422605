// Arrays that are not stored: views of those that are, and elementwise ops on them, element by
// element.
#pragma once

#include "backend/reference/node_eval.h"

#include <array>

namespace egret::backend::reference {

/// An array of which each element is one of a stored array, at a place that is linear in the
/// element's coordinates.
struct ArrayView {
  const Cells* cells = nullptr;
  Dims dims;
  std::int64_t start = 0; ///< the place of the element at 0, 0, ...
  Dims strides;           ///< by dim, in elements
};

ArrayView whole(const Cells& cells);
/// Permute, Expand, Shrink and Flip: a view of what they read.
bool is_view(Op op);
/// What such a node of shape `dims` makes of a view of its operand.
ArrayView moved(const ir::Node& node, ArrayView from, const Bindings& bindings, const Dims& dims);

/// Calls visit(number, positions) for every element of an array in row-major order; `positions` are
/// those that `strides`, one for each place and dim, lead to from `start`.
template <class Visit>
void for_each_position(const Dims& dims, const std::vector<std::int64_t>& start,
                       const std::vector<Dims>& strides, Visit&& visit) {
  const std::int64_t count = element_count(dims);
  Dims point(dims.size(), 0);
  std::vector<std::int64_t> positions = start;
  for (std::int64_t number = 0; number < count; ++number) {
    visit(number, static_cast<const std::vector<std::int64_t>&>(positions));
    for (std::size_t i = dims.size(); i-- > 0;) {
      const bool last = ++point[i] == dims[i];
      const std::int64_t by = last ? 1 - dims[i] : 1;
      for (std::size_t p = 0; p < positions.size(); ++p)
        positions[p] += by * strides[p][i];
      if (!last)
        break;
      point[i] = 0;
    }
  }
}

/// An array given by the ops that make its elements.
class Terms {
public:
  Terms(Dims dims, bool with_errors) : dims_(std::move(dims)), with_errors_(with_errors) {}

  /// Each gives the number of a value, an argument of later ones; the last is the array's.
  int add(const ArrayView& view);
  int add(const ir::Node& node, DType operand, const std::vector<int>& args);

  const Dims& dims() const { return dims_; }

  /// Calls visit(number, place, value) for every element in row-major order; `strides` leads to
  /// `place`, from 0.
  template <class Visit>
  void each(const Dims& strides, Visit&& visit) {
    start_.push_back(0);
    strides_.push_back(strides);
    for_each_position(dims_, start_, strides_,
                      [&](std::int64_t number, const std::vector<std::int64_t>& positions) {
                        visit(number, positions.back(), at(positions));
                      });
    start_.pop_back();
    strides_.pop_back();
  }

private:
  /// A value is read or the result of an op.
  struct Step {
    const Cells* cells = nullptr;
    std::size_t view = 0;
    Op op{};
    DType type{}, operand{};
    std::array<std::size_t, 3> args{};
    std::size_t arity = 0;
  };

  const Estimate& at(const std::vector<std::int64_t>& positions);

  Dims dims_;
  bool with_errors_;
  std::vector<Step> steps_;
  std::vector<Estimate> values_; ///< by step
  std::vector<std::int64_t> start_;
  std::vector<Dims> strides_; ///< by view
};

} // namespace egret::backend::reference

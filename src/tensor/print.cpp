// Tensors as text.
#include "tensor/ops.h"

#include <fmt/format.h>
#include <functional>
#include <ostream>

namespace egret {

using namespace detail;

namespace {

constexpr std::int64_t kWhole = 1000; // elements printed without a cut
constexpr std::int64_t kEdge = 3;     // at each end of an axis that is cut

struct Printer {
  const std::vector<std::int64_t>& sizes;
  const std::function<std::string(std::size_t)>& cell; ///< the element at a row-major place
  bool cut;
  std::string text;

  void element(std::size_t axis, std::size_t at) {
    if (axis == sizes.size()) {
      text += cell(at);
      return;
    }
    std::size_t stride = 1;
    for (std::size_t i = axis + 1; i < sizes.size(); ++i)
      stride *= static_cast<std::size_t>(sizes[i]);
    const bool innermost = axis + 1 == sizes.size();
    text += '[';
    for (std::int64_t i = 0; i < sizes[axis]; ++i) {
      if (i > 0) {
        text += ',';
        text += innermost ? " " : "\n" + std::string(axis + 1, ' ');
      }
      if (cut && sizes[axis] > 2 * kEdge && i == kEdge) {
        text += "...";
        i = sizes[axis] - kEdge - 1;
        continue;
      }
      element(axis + 1, at + static_cast<std::size_t>(i) * stride);
    }
    text += ']';
  }
};

// A NaN's sign means nothing.
template <class T>
std::string number_text(T value) {
  return value != value ? "nan" : fmt::format("{}", value);
}

template <class T, class Text>
std::function<std::string(std::size_t)> each(const Tensor& a, Text text) {
  return [values = a.to_vector<T>(), text](std::size_t i) { return text(values[i]); };
}

// The text of each element, made when it is asked for: of a large tensor few are shown.
std::function<std::string(std::size_t)> cells_of(const Tensor& a) {
  if (a.dtype() == DType::F64)
    return each<double>(a, number_text<double>);
  if (is_float(a.dtype()))
    return each<float>(a, number_text<float>);
  if (a.dtype() == DType::Bool)
    return each<bool>(a, [](bool value) { return std::string(value ? "true" : "false"); });
  if (a.dtype() == DType::U64)
    return each<std::uint64_t>(a, number_text<std::uint64_t>);
  return each<std::int64_t>(a, number_text<std::int64_t>);
}

} // namespace

std::string to_string(const Tensor& a) {
  if (!a.defined())
    return "tensor(empty)";
  const auto sizes = a.sizes();
  const auto cell = cells_of(a);
  Printer printer{sizes, cell, a.numel() > kWhole, {}};
  printer.element(0, 0);
  return fmt::format("{} {}{}", printer.text, name_of(a.dtype()),
                     to_string(Shape(sizes.begin(), sizes.end())));
}

std::ostream& operator<<(std::ostream& out, const Tensor& a) {
  return out << to_string(a);
}

} // namespace egret

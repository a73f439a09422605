// Tensors as text.
#include "tensor/ops.h"

#include <fmt/format.h>
#include <ostream>

namespace egret {

using namespace detail;

namespace {

constexpr std::int64_t kWhole = 1000; // elements printed without a cut
constexpr std::int64_t kEdge = 3;     // at each end of an axis that is cut

struct Printer {
  const std::vector<std::int64_t>& sizes;
  const std::vector<std::string>& cells;
  bool cut;
  std::string text;

  void element(std::size_t axis, std::size_t at) {
    if (axis == sizes.size()) {
      text += cells[at];
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

} // namespace

std::string to_string(const Tensor& a) {
  if (!a.defined())
    return "tensor(empty)";
  const auto sizes = a.sizes();
  std::vector<std::string> cells;
  if (is_float(a.dtype())) {
    for (double value : a.to_vector<double>())
      cells.push_back(a.dtype() == DType::F64 ? fmt::format("{}", value)
                                              : fmt::format("{}", static_cast<float>(value)));
  } else if (a.dtype() == DType::Bool) {
    for (bool value : a.to_vector<bool>())
      cells.push_back(value ? "true" : "false");
  } else if (a.dtype() == DType::U64) {
    for (std::uint64_t value : a.to_vector<std::uint64_t>())
      cells.push_back(fmt::format("{}", value));
  } else {
    for (std::int64_t value : a.to_vector<std::int64_t>())
      cells.push_back(fmt::format("{}", value));
  }
  Printer printer{sizes, cells, a.numel() > kWhole, {}};
  printer.element(0, 0);
  return fmt::format("{} {}{}", printer.text, name_of(a.dtype()),
                     to_string(Shape(sizes.begin(), sizes.end())));
}

std::ostream& operator<<(std::ostream& out, const Tensor& a) {
  return out << to_string(a);
}

} // namespace egret

#include "tensor/named_dims.h"

#include "support/fail.h"
#include "tensor/node.h"
#include "tensor/ops.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace egret::detail {

namespace {

void check(const NamedDim& dim, const std::vector<NamedDim>& dims) {
  if (dim.name.empty())
    fail(ErrorKind::Value, "compile: a dim has no name");
  if (std::count_if(dims.begin(), dims.end(),
                    [&](const NamedDim& other) { return other.name == dim.name; }) > 1)
    fail(ErrorKind::Value, "compile: dim {} is there twice; one dim may have several places",
         dim.name);
  if (dim.least < 0 || dim.least > dim.most)
    fail(ErrorKind::Value, "compile: dim {} has no size: from {} to {}", dim.name, dim.least,
         dim.most);
  if (dim.multiple_of < 1)
    fail(ErrorKind::Value, "compile: dim {} is a multiple of {}, which must be positive", dim.name,
         dim.multiple_of);
  if (dim.at.empty())
    fail(ErrorKind::Value, "compile: dim {} stands nowhere; `at` names argument and axis",
         dim.name);
  std::int64_t before = dim.least - 1;
  for (std::int64_t last : dim.buckets) {
    if (last <= before || last >= dim.most)
      fail(ErrorKind::Value,
           "compile: bucket {} of dim {}: buckets are ascending, from {} to below {}", last,
           dim.name, dim.least, dim.most);
    before = last;
  }
}

} // namespace

NamedDims::NamedDims(std::vector<NamedDim> dims) : dims_(std::move(dims)) {
  for (const NamedDim& dim : dims_)
    check(dim, dims_);
}

bool NamedDims::by_path() const noexcept {
  return std::any_of(dims_.begin(), dims_.end(), [](const NamedDim& dim) {
    return std::any_of(dim.at.begin(), dim.at.end(),
                       [](const NamedDim::Place& place) { return !place.path.empty(); });
  });
}

Expr NamedDims::stands_for(const NamedDim& dim, std::int64_t size, std::string& alone) const {
  if (size < dim.least || size > dim.most || size % dim.multiple_of != 0) {
    alone = fmt::format(
        "{} is {}, and not between {} and {}{}", dim.name, size, dim.least, dim.most,
        dim.multiple_of > 1 ? fmt::format(" in multiples of {}", dim.multiple_of) : std::string());
    return size;
  }
  std::int64_t least = dim.least, most = dim.most;
  for (std::int64_t last : dim.buckets) {
    if (size <= last) {
      most = last;
      break;
    }
    least = last + 1;
  }
  return Expr::symbol(dim.name, least, most, dim.multiple_of);
}

NamedDims::Seen NamedDims::seen(const Call& call) const {
  Seen result;
  for (const NamedDim& dim : dims_) {
    std::optional<std::int64_t> size;
    Expr symbol;
    for (const NamedDim::Place& place : dim.at) {
      bool met = false;
      for (std::size_t i = 0; i < call.leaves.size(); ++i) {
        const Call::Leaf& leaf = call.leaves[i];
        if (leaf.argument != place.argument || !leaf.tensor->defined() ||
            (!place.path.empty() && leaf.path != place.path))
          continue;
        met = true;
        const Shape& shape = leaf.tensor->shape();
        const auto axis = static_cast<std::size_t>(
            axis_of(place.axis, static_cast<std::int64_t>(shape.size()), shape, "compile"));
        const std::int64_t now = concrete(shape, "compile")[axis];
        if (!size) {
          size = now;
          symbol = stands_for(dim, now, result.alone);
        } else if (*size != now) {
          fail(ErrorKind::Shape, "compile: dim {} is {} in argument {} and {} before", dim.name,
               now, place.argument, *size);
        }
        result.with_symbols.try_emplace(i, shape).first->second[axis] = symbol;
      }
      if (!met)
        fail(ErrorKind::Value, "compile: dim {} stands in argument {}{}, where no tensor is",
             dim.name, place.argument, place.path.empty() ? "" : ", " + place.path);
    }
    result.sizes.push_back(symbol);
  }
  return result;
}

std::string NamedDims::range(const Seen& seen) const {
  std::string text;
  for (std::size_t i = 0; i < dims_.size(); ++i) {
    const Expr& size = seen.sizes[i];
    text += fmt::format("{}{} ", i > 0 ? ", " : "", dims_[i].name);
    text += size.is_constant() ? fmt::format("{} only", size.value())
                               : fmt::format("{} to {}", size.lower(), size.upper());
    if (size.divisor() > 1 && !size.is_constant())
      text += fmt::format(" in multiples of {}", size.divisor());
  }
  return text;
}

} // namespace egret::detail

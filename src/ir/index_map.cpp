#include "egret/index_map.h"

#include "ir/format.h"
#include "ir/index_holes.h"
#include "support/fail.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace egret {

namespace {

using index_detail::normalize_holes;

std::vector<Expr> variables(const Shape& dims) {
  std::vector<Expr> result;
  result.reserve(dims.size());
  for (std::size_t i = 0; i < dims.size(); ++i)
    result.push_back(Expr::axis(static_cast<int>(i), dims[i]));
  return result;
}

bool is_empty(const Shape& dims) {
  return std::any_of(dims.begin(), dims.end(), [](const Expr& d) { return d.constant() == 0; });
}

/// A size as a divisor: where it may be 0 the box is empty and any divisor will do.
Expr divisor_for(const Expr& size) {
  return size.lower() >= 1 ? size : max(size, 1);
}

/// The place of a point in row-major order.
Expr flat_index(std::span<const Expr> coords, std::span<const Expr> dims) {
  Expr flat, stride(1);
  for (std::size_t i = dims.size(); i-- > 0;) {
    flat = flat + coords[i] * stride;
    stride = stride * dims[i];
  }
  return flat;
}

/// The coordinates of element number `flat` of a box; all its elements have numbers.
void unflatten(const Expr& flat, std::span<const Expr> dims, std::span<Expr> coords) {
  Expr stride(1);
  for (std::size_t i = dims.size(); i-- > 0;) {
    const Expr place = floordiv(flat, divisor_for(stride));
    coords[i] = i == 0 ? place : floormod(place, divisor_for(dims[i]));
    stride = stride * dims[i];
  }
}

std::vector<std::size_t> not_of_size_one(const Shape& dims) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i].constant() != 1)
      places.push_back(i);
  return places;
}

/// Which of two products of dims wants another factor to become equal to the other.
bool left_is_smaller(const Expr& left, const Expr& right) {
  if (proves_less(left, right))
    return true;
  if (proves_less(right, left))
    return false;
  return floormod(divisor_for(right), divisor_for(left)) == Expr(0);
}

[[noreturn]] void wrong_count(const Shape& source, const Shape& result) {
  fail(ErrorKind::Shape, "reshape: {} has {} elements and {} has {}", to_string(source),
       element_count(source).str(), to_string(result), element_count(result).str());
}

void check_rank(const char* what, std::size_t got, const Shape& source) {
  if (got != source.size())
    fail(ErrorKind::Shape, "{}: {} values for the {} dims of {}", what, got, source.size(),
         to_string(source));
}

std::size_t checked_axis(const char* what, std::int64_t axis, const Shape& source) {
  if (axis < 0 || axis >= static_cast<std::int64_t>(source.size()))
    fail(ErrorKind::Axis, "{}: axis {} is out of range for {}", what, axis, to_string(source));
  return static_cast<std::size_t>(axis);
}

} // namespace

IndexMap IndexMap::identity(const Shape& dims) {
  return {dims, variables(dims), {}};
}

IndexMap IndexMap::row_major(const Shape& dims) {
  return {dims, {flat_index(variables(dims), dims)}, {}};
}

IndexMap IndexMap::reshape(const Shape& source, const Shape& result) {
  IndexMap map{result, std::vector<Expr>(source.size()), {}};
  if (is_empty(source) || is_empty(result)) {
    if (is_empty(source) != is_empty(result) && !(element_count(source) == element_count(result)))
      wrong_count(source, result);
    return map;
  }
  const std::vector<Expr> vars = variables(result);
  // Dims are taken from the outside in until the products of both sides agree; each such group is
  // flattened and split by itself, so that dims which are kept, split or merged need no more than
  // that.
  const auto from = not_of_size_one(source), to = not_of_size_one(result);
  std::size_t i = 0, j = 0;
  while (i < from.size() || j < to.size()) {
    const std::size_t first_i = i, first_j = j;
    Expr left(1), right(1);
    const auto take_left = [&] { left = left * source[from[i++]]; };
    const auto take_right = [&] { right = right * result[to[j++]]; };
    do {
      const bool more_left = i < from.size(), more_right = j < to.size();
      if (!more_left && !more_right)
        wrong_count(source, result);
      if (i == first_i && more_left)
        take_left();
      else if (j == first_j && more_right)
        take_right();
      else if (more_left && (!more_right || left_is_smaller(left, right)))
        take_left();
      else
        take_right();
    } while (i == first_i || j == first_j || !(left == right));
    std::vector<Expr> coords, dims, sizes;
    for (std::size_t k = first_j; k < j; ++k) {
      coords.push_back(vars[to[k]]);
      dims.push_back(result[to[k]]);
    }
    for (std::size_t k = first_i; k < i; ++k)
      sizes.push_back(source[from[k]]);
    std::vector<Expr> split(sizes.size());
    unflatten(flat_index(coords, dims), sizes, split);
    for (std::size_t k = first_i; k < i; ++k)
      map.coords[from[k]] = split[k - first_i];
  }
  return map;
}

IndexMap IndexMap::permute(const Shape& source, std::span<const std::int64_t> axes) {
  check_rank("permute", axes.size(), source);
  IndexMap map{{}, std::vector<Expr>(source.size()), {}};
  std::vector<bool> used(source.size(), false);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const std::size_t axis = checked_axis("permute", axes[i], source);
    if (used[axis])
      fail(ErrorKind::Axis, "permute: axis {} is named twice for {}", axis, to_string(source));
    used[axis] = true;
    map.dims.push_back(source[axis]);
    map.coords[axis] = Expr::axis(static_cast<int>(i), source[axis]);
  }
  return map;
}

IndexMap IndexMap::expand(const Shape& source, const Shape& result) {
  check_rank("expand", result.size(), source);
  IndexMap map{result, variables(result), {}};
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i].constant() == 1)
      map.coords[i] = 0;
    else if (!proves_equal(source[i], result[i]))
      fail(ErrorKind::Shape, "expand: {} does not expand to {}: dim {} is {} and not 1",
           to_string(source), to_string(result), i, source[i].str());
  }
  return map;
}

IndexMap IndexMap::pad(const Shape& source, std::span<const Expr> before,
                       std::span<const Expr> after, Scalar fill) {
  check_rank("pad", before.size(), source);
  check_rank("pad", after.size(), source);
  IndexMap map;
  Hole hole{{}, fill};
  for (std::size_t i = 0; i < source.size(); ++i) {
    map.dims.push_back(before[i] + source[i] + after[i]);
    const Expr variable = Expr::axis(static_cast<int>(i), map.dims[i]);
    map.coords.push_back(variable - before[i]);
    hole.valid.push_back({variable, before[i], before[i] + source[i]});
  }
  map.holes.push_back(std::move(hole));
  normalize_holes(map);
  return map;
}

IndexMap IndexMap::shrink(const Shape& source, std::span<const Expr> begin,
                          std::span<const Expr> end) {
  check_rank("shrink", begin.size(), source);
  check_rank("shrink", end.size(), source);
  IndexMap map;
  for (std::size_t i = 0; i < source.size(); ++i) {
    map.dims.push_back(end[i] - begin[i]);
    map.coords.push_back(Expr::axis(static_cast<int>(i), map.dims[i]) + begin[i]);
  }
  return map;
}

IndexMap IndexMap::flip(const Shape& source, std::span<const std::int64_t> axes) {
  IndexMap map = identity(source);
  for (const std::int64_t named : axes) {
    const std::size_t axis = checked_axis("flip", named, source);
    if (source[axis].constant() != 0)
      map.coords[axis] = source[axis] - 1 - Expr::axis(static_cast<int>(axis), source[axis]);
  }
  return map;
}

bool IndexMap::is_identity() const {
  if (!holes.empty() || coords.size() != dims.size())
    return false;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (!(coords[i] == Expr::axis(static_cast<int>(i), dims[i])))
      return false;
  return true;
}

std::uint64_t IndexMap::hash() const noexcept {
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  const auto put = [&](std::uint64_t word) { XXH3_64bits_update(&state, &word, sizeof word); };
  put(dims.size());
  for (const Expr& dim : dims)
    put(dim.hash());
  put(coords.size());
  for (const Expr& coord : coords)
    put(coord.hash());
  for (const Hole& hole : holes) {
    put(hole.valid.size());
    put(static_cast<std::uint64_t>(hole.fill.dtype));
    put(hole.fill.bits);
    for (const Guard& g : hole.valid) {
      put(g.value.hash());
      put(g.lo.hash());
      put(g.hi.hash());
    }
  }
  return XXH3_64bits_digest(&state);
}

std::string IndexMap::str() const {
  std::string text = "(";
  for (std::size_t i = 0; i < dims.size(); ++i)
    text += fmt::format("{}d{}", i == 0 ? "" : ",", i);
  text += ")" + to_string(dims) + " -> (";
  for (std::size_t i = 0; i < coords.size(); ++i)
    text += (i == 0 ? "" : ",") + coords[i].str();
  text += ")";
  for (std::size_t h = 0; h < holes.size(); ++h) {
    text += h == 0 ? " where " : "; where ";
    for (std::size_t i = 0; i < holes[h].valid.size(); ++i) {
      const Guard& g = holes[h].valid[i];
      text +=
          fmt::format("{}{}<={}<{}", i == 0 ? "" : " and ", g.lo.str(), g.value.str(), g.hi.str());
    }
    text += " else " + holes[h].fill.str();
  }
  return text;
}

IndexMap compose(const IndexMap& outer, const IndexMap& inner) {
  ensure(outer.coords.size() == inner.dims.size(), "compose: {} coordinates for {} dims",
         outer.coords.size(), inner.dims.size());
  if (inner.is_identity()) // as of flat memory
    return outer;
  if (outer.dims == inner.dims && outer.is_identity())
    return inner;
  IndexMap inside = rebase(inner, outer.coords, outer.dims);
  if (outer.holes.empty())
    return inside;
  inside.holes.insert(inside.holes.begin(), outer.holes.begin(), outer.holes.end());
  normalize_holes(inside);
  return inside;
}

IndexMap rebase(const IndexMap& map, const std::vector<Expr>& values, const Shape& dims) {
  ensure(values.size() == map.dims.size(), "rebase: {} values for {} variables", values.size(),
         map.dims.size());
  const auto put = [&](const Expr& e) {
    return substitute(e, [&](const Expr& variable) -> std::optional<Expr> {
      if (!variable.is_axis())
        return std::nullopt;
      const auto number = static_cast<std::size_t>(variable.axis_number());
      ensure(number < values.size(), "rebase: {} in a map of {} variables", variable,
             values.size());
      return values[number];
    });
  };
  IndexMap result{dims, {}, {}};
  result.coords.reserve(map.coords.size());
  for (const Expr& coord : map.coords)
    result.coords.push_back(put(coord));
  for (const Hole& hole : map.holes) {
    result.holes.push_back({{}, hole.fill});
    for (const Guard& g : hole.valid)
      result.holes.back().valid.push_back({put(g.value), put(g.lo), put(g.hi)});
  }
  normalize_holes(result);
  return result;
}

} // namespace egret

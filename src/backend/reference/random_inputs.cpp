#include "backend/reference/random_inputs.h"

#include "backend/reference/estimate.h"
#include "support/hash.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>

namespace egret::backend::reference {

namespace {

/// Longer arrays repeat themselves: a prime, so that no sensible stride meets the same values
/// again.
constexpr std::int64_t kDistinct = 1000003;

std::int64_t limit_of(const IndexMap& map, const Bindings& sizes) {
  std::int64_t limit = 0;
  for (const Hole& hole : map.holes)
    for (const Guard& guard : hole.valid) {
      const auto variables = variables_of(guard.value);
      const bool indirect = std::any_of(variables.begin(), variables.end(), [](const Expr& v) {
        return kernel::indirect_of(v).has_value();
      });
      const auto bounds = variables_of(guard.hi);
      const bool fixed = std::all_of(bounds.begin(), bounds.end(), [](const Expr& v) {
        return v.is_symbol() && !kernel::indirect_of(v);
      });
      if (indirect && fixed)
        limit = std::max(limit, sizes.value_of(guard.hi));
    }
  return limit;
}

double special_float(DType type, RandomNumbers& random) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const double values[] = {std::numeric_limits<double>::quiet_NaN(),
                           inf,
                           -inf,
                           0.0,
                           -0.0,
                           largest(type),
                           -largest(type),
                           smallest_normal(type),
                           smallest_normal(type) / 4};
  return values[random.word() % std::size(values)];
}

std::int64_t random_integer(DType type, std::int64_t index_limit, RandomNumbers& random) {
  if (type == DType::Bool)
    return random.integer(0, 1);
  if (index_limit > 0) {
    if (random.word() % 16 == 0) // outside
      return random.word() % 2 ? index_limit + random.integer(0, 3) : -random.integer(1, 3);
    return random.integer(0, index_limit - 1);
  }
  return is_signed(type) ? random.integer(-9, 9) : random.integer(0, 9);
}

} // namespace

std::uint64_t RandomNumbers::word() {
  return mix(state_ += 0x9e3779b97f4a7c15u);
}

double RandomNumbers::uniform(double lo, double hi) {
  return lo + (hi - lo) * static_cast<double>(word() >> 11) * 0x1p-53;
}

std::int64_t RandomNumbers::integer(std::int64_t lo, std::int64_t hi) {
  return lo + static_cast<std::int64_t>(word() % static_cast<std::uint64_t>(hi - lo + 1));
}

HostArray random_array(DType type, std::int64_t elements, std::int64_t index_limit, bool special,
                       RandomNumbers& random) {
  HostArray array(type, {elements});
  const std::int64_t distinct = std::min(elements, kDistinct);
  for (std::int64_t i = 0; i < distinct; ++i) {
    Number value;
    if (!is_float(type))
      value.i = random_integer(type, index_limit, random);
    else if (special && random.word() % 16 == 0)
      value.f = special_float(type, random);
    else
      value.f = random.uniform(-2, 2);
    array.set(i, round_to(type, value));
  }
  const auto period = static_cast<std::size_t>(distinct) * size_of(type);
  for (std::size_t at = period; at < array.bytes.size(); at += period)
    std::memcpy(array.bytes.data() + at, array.bytes.data(),
                std::min(period, array.bytes.size() - at));
  return array;
}

std::int64_t index_limit_of(const kernel::Region& region, const Bindings& sizes) {
  std::int64_t limit = 0;
  for (const kernel::Stage& stage : region.stages)
    for (const kernel::Load& load : stage.loads)
      limit = std::max(limit, limit_of(load.map, sizes));
  for (const kernel::Output& output : region.outputs)
    limit = std::max(limit, limit_of(output.map, sizes));
  return limit;
}

} // namespace egret::backend::reference

#include "egret/random.h"

#include "runtime/runtime.h"
#include "support/fail.h"
#include "support/hash.h"
#include "tensor/engine.h"
#include "tensor/ops.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

// A key as the paper asks for: each half of eight different hexadecimal digits, none of them 0, the
// last one odd. The digits are drawn by splitmix64 from the seed.
std::uint64_t key_of(std::uint64_t seed) {
  std::uint64_t state = seed;
  auto draw = [&](std::uint64_t below) {
    state += 0x9e3779b97f4a7c15u;
    return mix(state) % below;
  };
  std::uint64_t key = 0;
  for (int half = 0; half < 2; ++half) {
    std::uint64_t digits[15];
    for (std::uint64_t i = 0; i < 15; ++i)
      digits[i] = i + 1;
    std::uint64_t word = 0;
    for (std::uint64_t i = 0; i < 8; ++i) {
      std::swap(digits[i], digits[i + draw(15 - i)]);
      if (half == 1 && i == 7 && digits[i] % 2 == 0)
        for (std::uint64_t j = 8; j < 15; ++j) // seven are left, at least one of them odd
          if (digits[j] % 2 == 1) {
            std::swap(digits[i], digits[j]);
            break;
          }
      word = word << 4 | digits[i];
    }
    key = key << 32 | word;
  }
  return key;
}

// Numbers of the formulas are part of the program; a number alone would be an argument by value.
Tensor right(const Tensor& x, int bits) {
  return x >> constant(DType::U64, bits);
}
Tensor left(const Tensor& x, int bits) {
  return x << constant(DType::U64, bits);
}

// squares32 of Widynski 2020: four rounds of squaring the counter times the key.
Tensor squares(const Tensor& counter, const Tensor& key) {
  auto turned = [](const Tensor& x) { return right(x, 32) | left(x, 32); };
  const Tensor y = counter * key, z = y + key;
  Tensor x = turned(y * y + y);
  x = turned(x * x + z);
  x = turned(x * x + y);
  return right(x * x + z, 32);
}

// The value of a counter outside of traced functions.
std::uint64_t number_in(const NodePtr& counter) {
  if (counter->kind == Node::Kind::Number)
    return counter->number.bits;
  evaluate(counter, "random");
  std::uint64_t value = 0;
  runtime::Runtime::instance().copy_out(&value, storage_of(counter), sizeof value);
  return value;
}

NodePtr counter_node(std::uint64_t value) {
  return number_node(Scalar::from_bits(DType::U64, value));
}

// Bits to floats in [0, 1): as many of the top bits as the significand holds, so that 1 is not met.
Tensor fraction(const Tensor& bits, DType type) {
  const int keep = type == DType::BF16     ? 8
                   : type == DType::F16    ? 11
                   : type == DType::F8E4M3 ? 4
                   : type == DType::F8E5M2 ? 3
                                           : 24;
  const Tensor whole = right(bits, 32 - keep).to(DType::I32).to(DType::F32);
  return (whole * constant(DType::F32, std::ldexp(1.0, -keep))).to(type);
}

// 53 bits of two numbers.
Tensor fraction53(const Tensor& high, const Tensor& low) {
  const Tensor whole = left(right(high, 5), 26) | right(low, 6);
  return whole.to(DType::I64).to(DType::F64) * constant(DType::F64, std::ldexp(1.0, -53));
}

// The number of elements; Error(Shape) for negative dims and more than can be counted.
Expr possible_count(const Shape& shape) {
  auto refuse = [&] {
    fail(ErrorKind::Shape, "random: {} is no possible shape", to_string(shape));
  };
  if (!std::all_of(shape.begin(), shape.end(), [](const Expr& dim) { return dim.lower() >= 0; }))
    refuse();
  try {
    return element_count(shape);
  } catch (const Error&) {
    refuse();
    throw;
  }
}

Shape doubled(const Shape& shape) {
  Shape two = {Expr(2)};
  two.insert(two.end(), shape.begin(), shape.end());
  return two;
}

void require_float_type(DType dtype, const char* who) {
  if (!is_float(dtype))
    fail(ErrorKind::DType, "{}: {} is no float type; use randint or bernoulli", who,
         name_of(dtype));
}

} // namespace

Generator::Generator(std::uint64_t seed)
    : key(Access::wrap(number_node(Scalar::from_bits(DType::U64, key_of(seed))))),
      counter(Access::wrap(number_node(Scalar::from_bits(DType::U64, 0)))) {}

void Generator::seed(std::uint64_t seed) {
  Access::node(key, "seed");
  Access::node(counter, "seed");
  Access::put(key, counter_node(key_of(seed)));
  Access::put(counter, counter_node(0));
}

namespace detail {

std::uint64_t take_numbers(Handle& counter, std::uint64_t count) {
  for (;;) {
    const NodePtr now = counter.node();
    const std::uint64_t first = number_in(now);
    if (replace_outside(counter, now, counter_node(first + count)))
      return first;
  }
}

} // namespace detail

Tensor Generator::bits(const Shape& shape) {
  const Expr count = possible_count(shape);
  const NodePtr before = Access::node(counter, "random");
  Tensor first;
  if (before->scope) { // traced: the counter is a state
    first = Access::wrap(before);
    const Tensor after = first + number_of(count, DType::U64);
    Access::put(counter, Access::node(after, "random"));
  } else { // the same program for every draw, with the counter as a number
    const auto& handle = Access::handle(counter);
    const bool known = count.is_constant(); // else in a Graph, at each run
    const NodePtr node =
        counter_node(known ? take_numbers(*handle, static_cast<std::uint64_t>(count.value())) : 0);
    node->draw = std::make_shared<Draw>(Draw{handle, count, known});
    first = Access::wrap(node);
  }
  return made_here(squares(first + iota(count, DType::U64), key).reshape(shape));
}

Tensor rand(const Shape& shape, Generator& generator, DType dtype) {
  require_float_type(dtype, "rand");
  if (dtype != DType::F64)
    return fraction(generator.bits(shape), dtype);
  const Tensor pair = generator.bits(doubled(shape));
  return fraction53(pair[0], pair[1]);
}

Tensor uniform(const Shape& shape, double low, double high, Generator& generator, DType dtype) {
  require_float_type(dtype, "uniform");
  if (!(low <= high) || !std::isfinite(high - low))
    fail(ErrorKind::Value, "uniform: [{}, {}) is no finite range", low, high);
  const DType wide = accumulator_of(dtype);
  return (rand(shape, generator, wide) * (high - low) + low).to(dtype);
}

Tensor randn(const Shape& shape, Generator& generator, DType dtype) {
  require_float_type(dtype, "randn");
  if (dtype == DType::F64) {
    const Tensor draws = rand(doubled(shape), generator, dtype);
    const Tensor radius = sqrt(log1p(neg(draws[0])) * constant(dtype, -2)); // 1 - u lies in (0, 1]
    return radius * cos(draws[1] * constant(dtype, 2 * M_PI));
  }
  const Tensor bits = generator.bits(doubled(shape));
  const Tensor u = (right(bits[0], 8).to(DType::I32) + constant(DType::I32, 1)).to(DType::F32) *
                   constant(DType::F32, 0x1p-24);
  const Tensor angle = fraction(bits[1], DType::F32) * constant(DType::F32, 2 * M_PI);
  return (sqrt(log(u) * constant(DType::F32, -2)) * cos(angle)).to(dtype);
}

Tensor normal(const Shape& shape, double mean, double deviation, Generator& generator,
              DType dtype) {
  require_float_type(dtype, "normal");
  if (!(deviation >= 0) || !std::isfinite(mean) || !std::isfinite(deviation))
    fail(ErrorKind::Value,
         "normal: mean {} and deviation {}; both must be finite, the latter not "
         "negative",
         mean, deviation);
  const DType wide = accumulator_of(dtype);
  return (randn(shape, generator, wide) * deviation + mean).to(dtype);
}

Tensor randint(const Shape& shape, std::int64_t low, std::int64_t high, Generator& generator,
               DType dtype) {
  if (!is_integer(dtype))
    fail(ErrorKind::DType, "randint: {} is no integer type", name_of(dtype));
  const std::uint64_t width = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  if (low >= high || width > (std::uint64_t{1} << 32))
    fail(ErrorKind::Value, "randint: [{}, {}) must hold between 1 and 2^32 integers", low, high);
  const auto bits = static_cast<int>(8 * size_of(dtype)) - (is_signed(dtype) ? 1 : 0);
  const std::int64_t most =
      bits >= 63 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << bits) - 1;
  const std::int64_t least = is_signed(dtype) ? -most - 1 : 0;
  if (low < least || high - 1 > most)
    fail(ErrorKind::Value, "randint: [{}, {}) does not lie within the numbers of {}", low, high,
         name_of(dtype));
  const Tensor scaled = right(
      generator.bits(shape) * Access::wrap(number_node(Scalar::from_bits(DType::U64, width))), 32);
  return (scaled.to(DType::I64) + low).to(dtype);
}

Tensor bernoulli(const Shape& shape, double p, Generator& generator) {
  if (!(p >= 0 && p <= 1))
    fail(ErrorKind::Value, "bernoulli: p is {}; a probability lies between 0 and 1", p);
  const auto threshold = static_cast<std::uint64_t>(std::llround(std::ldexp(p, 32)));
  return generator.bits(shape) <
         Access::wrap(number_node(Scalar::from_bits(DType::U64, threshold)));
}

} // namespace egret

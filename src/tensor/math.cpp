// Functions of calculus that are compositions: inverse and hyperbolic trigonometry, erfc,
// logarithms of sums, and what is done to signs, fractions and remainders. f16 and bf16 are
// computed in f32.
#include "ir/float_format.h"
#include "support/fail.h"
#include "tensor/ops.h"

#include <cmath>
#include <limits>

namespace egret {

using namespace detail;

namespace {

struct Floats {
  Tensor a, b;
  DType type; ///< of the result
};
// Both operands as wide floats of one shape.
Floats float_pair(const Arg& a, const Arg& b, const char* who) {
  auto [x, y] = matched_floats(a, b, who);
  return {widened(x), widened(y), x.dtype()};
}

// 1, or -1 where x < 0. abs(x) as x * side(x) has slope 1 at 0, as odd functions of it need.
Tensor side(const Tensor& x) {
  return where(x < 0, number(x, -1), number(x, 1));
}

// Sum of c[i] z^i; of the first list for f32, of the second one for f64.
Tensor polynomial(const Tensor& z, std::initializer_list<double> f32,
                  std::initializer_list<double> f64) {
  const auto& c = z.dtype() == DType::F64 ? f64 : f32;
  Tensor sum = number(z, *(c.end() - 1));
  for (const double* i = c.end() - 1; i != c.begin();)
    sum = sum * z + number(z, *--i);
  return sum;
}

// The angle whose tangent is t, for -1 <= t <= 1. The value is a polynomial (tools/math); the
// gradient is that of atan(t) = atan(T) + atan((t - T) / (1 + t T)) at a fixed T = t, where the
// second term is 0 and its series, of which three terms stand here, has the derivatives of atan.
Tensor small_angle(const Tensor& t) {
  const Tensor z = t * t;
  const Tensor p =
      polynomial(z,
                 {-0x1.55553ep-2, 0x1.9991e4p-3, -0x1.242086p-3, 0x1.c08c50p-4, -0x1.580922p-4,
                  0x1.da29fap-5, -0x1.fd8f08p-6, 0x1.64720cp-7, -0x1.d4b230p-10},
                 {-0x1.5555555555526p-2,  0x1.99999999955b0p-3,  -0x1.249249237ecf6p-3,
                  0x1.c71c717f93de3p-4,   -0x1.745d11a89cc6dp-4, 0x1.3b136644605a0p-4,
                  -0x1.110e4deb4eaccp-4,  0x1.e1bb7aa5c7252p-5,  -0x1.ae5d9a2b23732p-5,
                  0x1.82d7b377b5d20p-5,   -0x1.599b188dd6883p-5, 0x1.2c1aecf65d064p-5,
                  -0x1.e9b864bdcf281p-6,  0x1.67e73667f3d2fp-6,  -0x1.c6e54a3bc6f78p-7,
                  0x1.d6ba3a0a11ccfp-8,   -0x1.7924d03981660p-9, 0x1.b25eb3b998b7bp-11,
                  -0x1.3dbe23d8bb86ep-13, 0x1.b972cb38f75d5p-17});
  const Tensor value = stopped(where(t == 0, t, t + t * z * p)); // of -0 the sum is 0
  const Tensor fixed = stopped(t);
  const Tensor d = (fixed - t) / (t * fixed + 1);
  const Tensor d2 = d * d;
  return value - d * (d2 * (d2 * number(t, 0.2) - number(t, 1.0 / 3)) + 1);
}

// atan2 of wide floats of one shape: the smaller quotient, then what is left of a right angle.
// Where both are zero or both infinite the quotient is 0 or 1 with the sign of both, without a
// gradient.
Tensor angle(const Tensor& y, const Tensor& x) {
  const Tensor steep = abs(y) > abs(x);
  const Tensor same = (y == 0) & (x == 0), far = isinf(y) & isinf(x);
  const Tensor size = where(far, number(y, 1), number(y, 0));
  const Tensor above = where(far | same, copysign(size, y), where(steep, x, y));
  const Tensor below = where(far | same, copysign(number(x, 1), x), where(steep, y, x));
  const Tensor quotient = above / below;
  const Tensor turn = small_angle(quotient);
  const Tensor half = copysign(number(y, M_PI), y);
  return where(steep, half * 0.5 - turn, where(signbit(x), turn + half, turn));
}

Tensor larger_half(const Tensor& e) { // e² / 2, without overflow where the half fits
  return e * 0.5 * e;
}

} // namespace

Tensor signbit(const Operand& a) {
  Access::held(a, "signbit");
  if (!is_signed(a.dtype()))
    return zeros(a.shape(), DType::Bool);
  return a.bitcast(bits_of(a.dtype())) >= top_bit(a.dtype());
}

Tensor copysign(const Arg& a, const Arg& b) {
  auto [x, y] = matched_floats(a, b, "copysign");
  const Tensor size = abs(x);
  return where(signbit(y), neg(size), size);
}

Tensor fmod(const Arg& a, const Arg& b) {
  auto [x, y] = matched(a, b, "fmod");
  if (is_float(x.dtype())) {
    const Tensor turn = where(signbit(x), number(x, -1), number(x, 1));
    return mod(x * turn, abs(y)) * turn; // x * turn: the slope of abs(x) is 0 at 0
  }
  const Tensor m = mod(x, y);
  return where((m != 0) & ((x < 0) != (y < 0)), m - y, m);
}

Tensor remainder(const Arg& a, const Arg& b) {
  return mod(a, b);
}

Tensor frac(const Operand& a) {
  require_float(a, "frac");
  return a - trunc(a);
}

Tensor rsqrt(const Operand& a) {
  return wide(a, "rsqrt", [](const Tensor& x) { return reciprocal(sqrt(x)); });
}

Tensor tan(const Operand& a) {
  return wide(a, "tan", [](const Tensor& x) { return sin(x) / cos(x); });
}

Tensor asin(const Operand& a) {
  return wide(a, "asin", [](const Tensor& x) { return angle(x, sqrt((1 - x) * (x + 1))); });
}

Tensor acos(const Operand& a) {
  return wide(a, "acos", [](const Tensor& x) { return angle(sqrt(1 - x), sqrt(x + 1)) * 2; });
}

Tensor atan(const Operand& a) {
  return wide(a, "atan", [](const Tensor& x) {
    const Tensor steep = abs(x) > 1;
    const Tensor turn = small_angle(where(steep, reciprocal(x), x));
    return where(steep, copysign(number(x, M_PI / 2), x) - turn, turn);
  });
}

Tensor atan2(const Arg& a, const Arg& b) {
  const Floats p = float_pair(a, b, "atan2");
  return angle(p.a, p.b).to(p.type);
}

Tensor sinh(const Operand& a) {
  return wide(a, "sinh", [](const Tensor& x) {
    const Tensor s = side(x), size = x * s;
    const Tensor m = expm1(size);
    const Tensor near = (m + m / (m + 1)) * 0.5;
    return where(size < 20, near, larger_half(exp(size * 0.5))) * s;
  });
}

Tensor cosh(const Operand& a) {
  return wide(a, "cosh", [](const Tensor& x) {
    const Tensor size = x * side(x);
    const Tensor e = exp(size);
    return where(size < 20, e * 0.5 + reciprocal(e) * 0.5, larger_half(exp(size * 0.5)));
  });
}

Tensor asinh(const Operand& a) {
  return wide(a, "asinh", [](const Tensor& x) {
    const Tensor s = side(x), size = x * s;
    // Where 1 is nothing beside a², the square may overflow.
    const Tensor near = where(size < 1e9, size, number(x, 1));
    const Tensor square_root = sqrt(near * near + 1);
    const Tensor small = log1p(near + near * near / (square_root + 1));
    const Tensor value = where(size < 1e9, small, log(size) + number(x, M_LN2)) * s;
    return where(x == 0, x, value); // the sum in `small` makes 0 of -0
  });
}

Tensor acosh(const Operand& a) {
  return wide(a, "acosh", [](const Tensor& x) {
    const Tensor t = where(x < 1e9, x, number(x, 2)) - 1;
    const Tensor small = log1p(t + sqrt(t * (t + 2)));
    const Tensor y = where(x < 1e9, small, log(x) + number(x, M_LN2));
    return where(x < 1, number(x, std::numeric_limits<double>::quiet_NaN()), y);
  });
}

Tensor atanh(const Operand& a) {
  return wide(a, "atanh", [](const Tensor& x) {
    const Tensor s = side(x), size = x * s;
    return log1p(size * 2 / (1 - size)) * 0.5 * s;
  });
}

// exp(-x²) times a polynomial (tools/math) for x >= 0, x² in two parts: the first one exact, so
// that the error of the square is not multiplied by it. The gradient is that of -erf.
Tensor erfc(const Operand& a) {
  return wide(a, "erfc", [](const Tensor& x) {
    const bool f64 = x.dtype() == DType::F64;
    const Tensor size = minimum(abs(x), f64 ? 30.0 : 12.0);
    const DType bits = f64 ? DType::I64 : DType::I32;
    const Tensor mask = constant(
        Scalar::of(bits, f64 ? ~((std::int64_t{1} << 27) - 1) : ~((std::int64_t{1} << 12) - 1)));
    const Tensor high = (size.bitcast(bits) & mask).bitcast(x.dtype());
    const Tensor scale = exp(neg(high * high)) * exp((high - size) * (high + size));
    const Tensor p =
        polynomial((size - 2) / (size + 2),
                   {0x1.8849aap-1, -0x1.0a36dap-2, 0x1.35c49ep-5, 0x1.5c777ap-5, -0x1.9d7bb4p-6,
                    -0x1.133c74p-11, 0x1.ff2d4ep-9, 0x1.3f4dccp-13, -0x1.415d7cp-11,
                    -0x1.ce91dcp-14, 0x1.e7623ap-16},
                   {0x1.8849aa8fc2b31p-1,   -0x1.0a36d7faca080p-2,  0x1.35c57e12ea862p-5,
                    0x1.5c7530c104470p-5,   -0x1.9d9724081a38ap-6,  -0x1.0fb9ead7b3737p-11,
                    0x1.02109246ba41fp-8,   0x1.2f6b013764957p-13,  -0x1.727a27f296a41p-11,
                    -0x1.259477b16fd36p-13, 0x1.ea8193e7ecbc5p-14,  0x1.02e99b16fd5c3p-14,
                    -0x1.03841c8428e97p-17, -0x1.25dc90c68daf9p-16, -0x1.4750b61a366b0p-18,
                    0x1.4943a0fab1592p-19,  0x1.44e5fd22fe432p-19,  0x1.0c96ed978fb14p-21,
                    -0x1.dc867cd23068fp-22, -0x1.a0205d8a905b2p-22, -0x1.10c69400a1c68p-24,
                    0x1.7b5081bdac2dcp-24,  0x1.db192d2b7261bp-25,  -0x1.19e11298552b7p-30,
                    -0x1.634afc67d47f0p-27, -0x1.5592ca76f2eeap-29, 0x1.4851b4829ca48p-34});
    const Tensor right = scale * p / (size + 1);
    const Tensor value = where(x < 0, 2 - right, right);
    const Tensor e = erf(x);
    return stopped(value) - (e - stopped(e));
  });
}

Tensor log10(const Operand& a) {
  return wide(a, "log10", [](const Tensor& x) { return log(x) * number(x, M_LOG10E); });
}

Tensor logit(const Operand& a, std::optional<double> eps) {
  return wide(a, "logit", [eps](const Tensor& x) {
    const Tensor p = eps ? clamp(x, *eps, 1 - *eps) : x;
    return log(p / (1 - p));
  });
}

Tensor sinc(const Operand& a) {
  return wide(a, "sinc", [](const Tensor& x) {
    const Tensor turned = where(x == 0, number(x, 1), x) * number(x, M_PI);
    const Tensor near = where(x == 0, number(x, 1), sin(turned) / turned);
    return where(abs(x) > 1e30, x * 0, near); // where πx may overflow
  });
}

Tensor hypot(const Arg& a, const Arg& b) {
  const Floats p = float_pair(a, b, "hypot");
  const Tensor x = abs(p.a), y = abs(p.b);
  const Tensor large = maximum(x, y), small = minimum(x, y);
  const Tensor ratio = small / where(large == 0, number(large, 1), large);
  const Tensor length = large * sqrt(ratio * ratio + 1);
  return where(isinf(x) | isinf(y), number(x, kInfinity), length).to(p.type);
}

Tensor logaddexp(const Arg& a, const Arg& b) {
  const Floats p = float_pair(a, b, "logaddexp");
  // Equal infinities have no difference.
  const Tensor apart = where(p.a == p.b, number(p.a, 0), p.a - p.b);
  return (maximum(p.a, p.b) + log1p(exp(neg(abs(apart))))).to(p.type);
}

Tensor logaddexp2(const Arg& a, const Arg& b) {
  const Floats p = float_pair(a, b, "logaddexp2");
  const Tensor apart = where(p.a == p.b, number(p.a, 0), p.a - p.b);
  return (maximum(p.a, p.b) + log1p(exp2(neg(abs(apart)))) * number(p.a, M_LOG2E)).to(p.type);
}

Tensor xlogy(const Arg& a, const Arg& b) {
  const Floats p = float_pair(a, b, "xlogy");
  // The logarithm of 1 where 0 would meet an infinite one.
  const Tensor plain = (p.a == 0) & ((p.b <= 0) | (p.b == kInfinity));
  return (p.a * log(where(plain, number(p.b, 1), p.b))).to(p.type);
}

Tensor lerp(const Operand& a, const Operand& b, const Arg& weight) {
  const Floats p = float_pair(a, b, "lerp");
  Tensor w = as_tensor(weight, p.type).to(p.a.dtype());
  const Tensor step = p.b - p.a;
  return where(w < 0.5, p.a + w * step, p.b - step * (1 - w)).to(p.type);
}

Tensor nan_to_num(const Operand& a, double nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  Access::held(a, "nan_to_num");
  if (!is_float(a.dtype()))
    return a.clone();
  const double most = largest(a.dtype());
  Tensor result = where(isnan(a), number(a, nan), a);
  result = where(a == kInfinity, number(a, posinf.value_or(most)), result);
  return where(a == -kInfinity, number(a, neginf.value_or(-most)), result);
}

Tensor deg2rad(const Operand& a) {
  return wide(a, "deg2rad", [](const Tensor& x) { return x * number(x, M_PI / 180); });
}
Tensor rad2deg(const Operand& a) {
  return wide(a, "rad2deg", [](const Tensor& x) { return x * number(x, 180 / M_PI); });
}

Tensor logical_xor(const Arg& a, const Arg& b) {
  return as_tensor(a, DType::Bool) ^ as_tensor(b, DType::Bool);
}

Tensor bitwise_not(const Operand& a) {
  Access::held(a, "bitwise_not");
  if (is_float(a.dtype()))
    fail(ErrorKind::DType, "bitwise_not: takes bools and integers, got {}", name_of(a.dtype()));
  return a ^
         Tensor(constant(Scalar::of(a.dtype(), std::int64_t{a.dtype() == DType::Bool ? 1 : -1})));
}

Tensor isclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan) {
  auto [x, y] = promoted(a, b, "isclose");
  const bool exact = !is_float(x.dtype());
  x = exact ? as_tensor(a, DType::F64) : x, y = exact ? as_tensor(b, DType::F64) : y;
  const Tensor near = (abs(x - y) <= abs(y) * rtol + atol) & isfinite(y);
  const Tensor close = (x == y) | near;
  return equal_nan ? close | (isnan(x) & isnan(y)) : close;
}

Tensor allclose(const Arg& a, const Arg& b, double rtol, double atol, bool equal_nan) {
  return all(isclose(a, b, rtol, atol, equal_nan));
}

} // namespace egret

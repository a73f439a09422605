#include "egret/functional/fourier.h"

#include "support/fail.h"
#include "tensor/complex_parts.h"
#include "tensor/ops.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace egret::fourier {

using namespace egret::detail;

void require_parts_alike(const Complex& a, const char* who) {
  Access::held(a.real, who);
  Access::held(a.imag, who);
  if (a.real.shape() != a.imag.shape())
    fail(ErrorKind::Shape, "{}: a real part {} and an imaginary part {}; shapes must be equal", who,
         shape_of(a.real), shape_of(a.imag));
  if (a.real.dtype() != a.imag.dtype())
    fail(ErrorKind::DType,
         "{}: a real part of {} and an imaginary part of {}; dtypes must be equal", who,
         name_of(a.real.dtype()), name_of(a.imag.dtype()));
}

DType float_type(const Tensor& a) {
  return is_float(a.dtype()) ? a.dtype() : DType::F32;
}

namespace {

/// Of sizes up to the first a transform is one product; no factor is larger than the second, unless
/// it is made by a convolution.
constexpr std::int64_t kDirect = 32, kLargestFactor = 64;

/// Numbers along the last of two axes. `imag` is empty of real ones.
struct Line {
  Tensor real, imag;
  bool is_real() const { return !imag.defined(); }
  const Expr& batch() const { return real.shape()[0]; }
  std::int64_t size() const { return real.size(1); }
};

/// exp(sign · 2πi k / n) for 0 <= k < n, made in f64.
class Roots {
public:
  Roots(std::int64_t n, double sign, DType type) : n_(n) {
    const Tensor angle =
        positions(n).to(DType::F64) * (2 * std::numbers::pi / static_cast<double>(n));
    real_ = cos(angle).to(type);
    imag_ = (sin(angle) * sign).to(type);
  }
  /// At places that are taken modulo n.
  Complex at(const Tensor& k) const {
    const Tensor index = mod(k, n_);
    return {take(real_, index, 0), take(imag_, index, 0)};
  }

private:
  std::int64_t n_;
  Tensor real_, imag_;
};

/// w^(j k) for 0 <= j < rows and 0 <= k < columns.
Complex powers(const Roots& roots, std::int64_t rows, std::int64_t columns) {
  return roots.at(unsqueeze(positions(rows), 1) * positions(columns));
}

Line times(const Line& a, const Complex& by) {
  if (a.is_real())
    return {a.real * by.real, a.real * by.imag};
  return {a.real * by.real - a.imag * by.imag, a.real * by.imag + a.imag * by.real};
}

/// [batch, 2, ...]: both parts; of real numbers [batch, 1, ...].
Tensor both(const Line& a, const Shape& shape) {
  Shape all = shape;
  all.insert(all.begin() + 1, Expr(1));
  const Tensor real = reshape(a.real, all);
  return a.is_real() ? real : cat({real, reshape(a.imag, all)}, 1);
}

/// The matrix by which both parts of n numbers, one behind the other, become both parts of their
/// transform: [2 n, 2 n], of real numbers [2 n, n].
Tensor matrix(std::int64_t n, double sign, DType type, bool of_real) {
  const Complex w = powers(Roots(n, sign, type), n, n);
  const Tensor left = cat({w.real, w.imag}, 0);
  return of_real ? left : cat({left, cat({neg(w.imag), w.real}, 0)}, 1);
}

Line transform(const Line& x, double sign);

/// By the matrix.
Line direct(const Line& x, double sign) {
  const std::int64_t n = x.size();
  const Tensor y = matmul(x.is_real() ? x.real : cat({x.real, x.imag}, 1),
                          transpose(matrix(n, sign, x.real.dtype(), x.is_real())));
  return {y.narrow(1, 0, n), y.narrow(1, n, n)};
}

/// A factor of n near n^(1/m), where m factors up to kDirect would do; n where it has none up to
/// kLargestFactor.
std::int64_t factor_of(std::int64_t n) {
  const double parts = std::ceil(std::log(double(n)) / std::log(double(kDirect)) - 1e-9);
  const double wanted = std::log(double(n)) / std::max(parts, 2.0);
  std::int64_t best = n;
  for (std::int64_t f = 2; f <= std::min(kLargestFactor, n / 2); ++f)
    if (n % f == 0 && (best == n || std::abs(std::log(double(f)) - wanted) <
                                        std::abs(std::log(double(best)) - wanted)))
      best = f;
  return best;
}

/// x[j] with j = j1 n2 + j2 and X[k] with k = k1 + n1 k2: transforms of n1 for each j2, powers of w
/// by j2 k1, transforms of n2 for each k1.
Line by_factors(const Line& x, std::int64_t n1, double sign) {
  const Expr batch = x.batch();
  const std::int64_t n = x.size(), n2 = n / n1;
  const DType type = x.real.dtype();
  const std::int64_t parts = x.is_real() ? 1 : 2;
  const Tensor columns = reshape(both(x, {batch, n1, n2}), {batch, parts * n1, n2});
  const Tensor first = matmul(matrix(n1, sign, type, x.is_real()), columns);
  const Line turned = times({first.narrow(1, 0, n1), first.narrow(1, n1, n1)},
                            powers(Roots(n, sign, type), n1, n2)); // [batch, n1, n2]
  if (n2 <= kDirect) {
    const Tensor rows =
        reshape(permute(both(turned, {batch, n1, n2}), {0, 1, 3, 2}), {batch, 2 * n2, n1});
    const Tensor y = reshape(matmul(matrix(n2, sign, type, false), rows), {batch, 2 * n});
    return {y.narrow(1, 0, n), y.narrow(1, n, n)};
  }
  const Line y = transform(
      {reshape(turned.real, {batch * n1, n2}), reshape(turned.imag, {batch * n1, n2})}, sign);
  const auto in_order = [&](const Tensor& a) {
    return reshape(transpose(reshape(a, {batch, n1, n2})), {batch, n});
  };
  return {in_order(y.real), in_order(y.imag)};
}

/// jk = (j² + k² - (k - j)²) / 2: the transform is a convolution with exp(∓πi j²/n), which
/// transforms of a size without large factors make.
Line by_convolution(const Line& x, double sign) {
  const std::int64_t n = x.size();
  std::int64_t m = 1;
  while (m < 2 * n - 1)
    m *= 2;
  const Tensor j = positions(n);
  const Complex chirp = Roots(2 * n, sign, x.real.dtype()).at(j * j);
  const auto padded = [&](const Tensor& a, std::int64_t before, std::int64_t after) {
    return pad(a, {0, before}, {0, after});
  };
  // exp(∓πi j²/n) for -n < j < n, the negative ones at the end.
  const auto around = [&](const Tensor& a) {
    const Tensor row = unsqueeze(a, 0);
    return padded(row, 0, m - n) + padded(flip(row.narrow(1, 1, n - 1), 1), m - n + 1, 0);
  };
  const Line a = times(x, chirp);
  const Line data = transform({padded(a.real, 0, m - n), padded(a.imag, 0, m - n)}, -1),
             filter = transform({around(chirp.real), around(neg(chirp.imag))}, -1);
  const Line product = times(data, {filter.real, filter.imag});
  const Line y = transform(product, 1);
  const double scale = 1 / static_cast<double>(m);
  return times({y.real.narrow(1, 0, n) * scale, y.imag.narrow(1, 0, n) * scale}, chirp);
}

Line transform(const Line& x, double sign) {
  const std::int64_t n = x.size();
  if (n <= kDirect)
    return direct(x, sign);
  const std::int64_t factor = factor_of(n);
  if (factor < n)
    return by_factors(x, factor, sign);
  return n <= kLargestFactor ? direct(x, sign) : by_convolution(x, sign);
}

/// Of n real numbers, the first n / 2 + 1 of the transform. Of an even n, neighbours are the parts
/// of n / 2 complex ones, whose transform has those of the even and of the odd places in it.
Line of_real(const Tensor& x) {
  const std::int64_t n = x.size(1), half = n / 2;
  if (n <= kDirect || n % 2 == 1) {
    const Line y = transform({x, {}}, -1);
    return {y.real.narrow(1, 0, half + 1), y.imag.narrow(1, 0, half + 1)};
  }
  const Tensor pairs = reshape(x, {x.shape()[0], half, 2});
  const Line z = transform({pairs.select(2, 0), pairs.select(2, 1)}, -1);
  const auto around = [](const Tensor& a) { return cat({a, a.narrow(1, 0, 1)}, 1); };
  const Tensor real = around(z.real), imag = around(z.imag), back_real = flip(real, 1),
               back_imag = flip(imag, 1);
  const Line odd = times({(imag + back_imag) * 0.5, (back_real - real) * 0.5},
                         Roots(n, -1, x.dtype()).at(positions(half + 1)));
  return {(real + back_real) * 0.5 + odd.real, (imag - back_imag) * 0.5 + odd.imag};
}

/// Its inverse times n.
Tensor to_real(const Line& x, std::int64_t n) {
  const std::int64_t half = n / 2;
  const Tensor k = positions(half + 1);
  const Tensor both_ends = n % 2 == 0 ? logical_or(eq(k, 0), eq(k, half)) : eq(k, 0);
  const Tensor imag = masked_fill(x.imag, both_ends, 0.0);
  if (n % 2 == 1 || n <= kDirect) {
    const std::int64_t others = n - half - 1;
    const auto whole = [&](const Tensor& a, bool conjugate) {
      if (others == 0)
        return a;
      const Tensor rest = flip(a.narrow(1, 1, others), 1);
      return cat({a, conjugate ? neg(rest) : rest}, 1);
    };
    return transform({whole(x.real, false), whole(imag, true)}, 1).real;
  }
  const Tensor back_real = flip(x.real, 1), back_imag = flip(imag, 1);
  const Line odd = times({x.real - back_real, imag + back_imag}, Roots(n, 1, x.real.dtype()).at(k));
  const Line z = transform({(x.real + back_real - odd.imag).narrow(1, 0, half),
                            (imag - back_imag + odd.real).narrow(1, 0, half)},
                           1);
  return reshape(stack({z.real, z.imag}, 2), {x.batch(), n});
}

// --- Axes, dtypes and norms

std::int64_t checked_axis(const Tensor& a, std::int64_t axis, const char* who) {
  axis = axis_of(axis, a.rank(), a.shape(), who);
  const Expr& size = a.shape()[static_cast<std::size_t>(axis)];
  if (!size.is_constant() || size.value() < 1)
    fail(ErrorKind::Shape, "{}: axis {} of {}; its size must be a known number, and not 0", who,
         axis, shape_of(a));
  return axis;
}

/// [.., n] along an axis as [batch, n] in the type of the arithmetic, and back.
Tensor as_lines(const Tensor& a, std::int64_t axis) {
  const Tensor last = movedim(a.to(a.dtype() == DType::F64 ? DType::F64 : DType::F32), axis, -1);
  Expr lines(1);
  for (std::int64_t i = 0; i + 1 < last.rank(); ++i)
    lines = lines * last.shape()[static_cast<std::size_t>(i)];
  return reshape(last, {lines, last.shape().back()});
}
Tensor from_lines(const Tensor& lines, const Tensor& like, std::int64_t axis, double scale) {
  Shape shape = like.shape();
  shape.erase(shape.begin() + axis);
  shape.push_back(lines.shape()[1]);
  const Tensor scaled = scale == 1 ? lines : lines * scale;
  return movedim(reshape(scaled, shape), -1, axis).to(float_type(like));
}

double scale_of(Norm norm, bool inverse, std::int64_t n) {
  if (norm == Norm::Ortho)
    return 1 / std::sqrt(static_cast<double>(n));
  return (norm == Norm::Backward) == inverse ? 1 / static_cast<double>(n) : 1;
}

// The axis cut, or padded with zeros behind, to a size that the user gave.
Tensor sized(const Tensor& a, std::int64_t axis, std::int64_t n) {
  const std::int64_t have = a.size(axis);
  if (n <= have)
    return n == have ? a : a.narrow(axis, 0, n);
  std::vector<std::int64_t> before(a.shape().size(), 0), after = before;
  after[static_cast<std::size_t>(axis)] = n - have;
  return pad(a, before, after);
}

std::int64_t checked_size(std::int64_t n, const char* who) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40; // sizes of convolutions fit 64 bits
  if (n < 1)
    fail(ErrorKind::Value, "{}: n is {}; it must be positive", who, n);
  if (n > kMost)
    fail(ErrorKind::Value, "{}: n is {}; at most {} is possible", who, n, kMost);
  return n;
}

Complex along(Complex a, std::int64_t axis, Norm norm, bool inverse, const char* who,
              std::optional<std::int64_t> n = {}) {
  require_parts_alike(a, who);
  axis = checked_axis(a.real, axis, who);
  if (n) {
    checked_size(*n, who);
    a = {sized(a.real, axis, *n), sized(a.imag, axis, *n)};
  }
  const Line y = transform({as_lines(a.real, axis), as_lines(a.imag, axis)}, inverse ? 1 : -1);
  const double scale = scale_of(norm, inverse, a.real.size(axis));
  return {from_lines(y.real, a.real, axis, scale), from_lines(y.imag, a.real, axis, scale)};
}

std::vector<std::int64_t> listed(const Axes& axes, std::int64_t rank) {
  if (!axes.all())
    return axes.list();
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < rank; ++i)
    all.push_back(i);
  return all;
}

Complex along_all(Complex a, const std::vector<std::int64_t>& axes, Norm norm, bool inverse,
                  const char* who) {
  if (axes.empty())
    return {a.real.clone(), a.imag.clone()};
  for (const std::int64_t axis : axes)
    a = along(a, axis, norm, inverse, who);
  return a;
}

Tensor rolled(const Tensor& a, const Axes& axes, bool back, const char* who) {
  Access::held(a, who);
  const std::vector<std::int64_t> list = listed(axes, a.rank());
  std::vector<std::int64_t> by;
  for (const std::int64_t axis : list) {
    const std::int64_t n = a.size(checked_axis(a, axis, who));
    by.push_back(back ? (n + 1) / 2 : n / 2);
  }
  return list.empty() ? a.clone() : roll(a, by, list);
}

} // namespace

Complex operator*(const Complex& a, const Complex& b) {
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}
Complex operator+(const Complex& a, const Complex& b) {
  return {a.real + b.real, a.imag + b.imag};
}
Complex operator-(const Complex& a, const Complex& b) {
  return {a.real - b.real, a.imag - b.imag};
}
Complex conj(const Complex& a) {
  return {a.real.clone(), neg(a.imag)};
}
Tensor abs(const Complex& a) {
  return hypot(a.real, a.imag);
}
Tensor angle(const Complex& a) {
  return atan2(a.imag, a.real);
}

Complex fft(const Complex& a, std::int64_t axis, Norm norm, std::optional<std::int64_t> n) {
  return along(a, axis, norm, false, "fft", n);
}
Complex ifft(const Complex& a, std::int64_t axis, Norm norm, std::optional<std::int64_t> n) {
  return along(a, axis, norm, true, "ifft", n);
}

Complex rfft(const Operand& a, std::int64_t axis, Norm norm, std::optional<std::int64_t> n) {
  Access::held(a, "rfft");
  axis = checked_axis(a, axis, "rfft");
  const Tensor x = n ? sized(a, axis, checked_size(*n, "rfft")) : Tensor(a);
  const Line y = of_real(as_lines(x, axis));
  const double scale = scale_of(norm, false, x.size(axis));
  return {from_lines(y.real, x, axis, scale), from_lines(y.imag, x, axis, scale)};
}

Tensor irfft(const Complex& a, std::optional<std::int64_t> n, std::int64_t axis, Norm norm) {
  require_parts_alike(a, "irfft");
  axis = checked_axis(a.real, axis, "irfft");
  const std::int64_t wanted = checked_size(n.value_or(2 * (a.real.size(axis) - 1)), "irfft");
  const std::int64_t half = wanted / 2 + 1;
  const Tensor real = sized(a.real, axis, half), imag = sized(a.imag, axis, half);
  const Tensor y = to_real({as_lines(real, axis), as_lines(imag, axis)}, wanted);
  return from_lines(y, real, axis, scale_of(norm, true, wanted));
}

Complex fftn(const Complex& a, const Axes& axes, Norm norm) {
  require_parts_alike(a, "fftn");
  return along_all(a, listed(axes, a.real.rank()), norm, false, "fftn");
}
Complex ifftn(const Complex& a, const Axes& axes, Norm norm) {
  require_parts_alike(a, "ifftn");
  return along_all(a, listed(axes, a.real.rank()), norm, true, "ifftn");
}

Complex rfftn(const Operand& a, const Axes& axes, Norm norm) {
  Access::held(a, "rfftn");
  std::vector<std::int64_t> list = listed(axes, a.rank());
  if (list.empty())
    fail(ErrorKind::Axis, "rfftn: of {}, no axis is named; there is at least one", shape_of(a));
  const std::int64_t last = list.back();
  list.pop_back();
  return along_all(rfft(a, last, norm), list, norm, false, "rfftn");
}
Tensor irfftn(const Complex& a, std::optional<std::int64_t> n, const Axes& axes, Norm norm) {
  require_parts_alike(a, "irfftn");
  std::vector<std::int64_t> list = listed(axes, a.real.rank());
  if (list.empty())
    fail(ErrorKind::Axis, "irfftn: of {}, no axis is named; there is at least one",
         shape_of(a.real));
  const std::int64_t last = list.back();
  list.pop_back();
  return irfft(along_all(a, list, norm, true, "irfftn"), n, last, norm);
}

namespace {

void check_samples(std::int64_t n, double distance, const char* who) {
  if (n < 1)
    fail(ErrorKind::Value, "{}: of {} samples; there is at least one", who, n);
  if (distance == 0 || !std::isfinite(distance))
    fail(ErrorKind::Value, "{}: samples {} apart; it must be a finite number, and not 0", who,
         distance);
}

} // namespace

Tensor frequencies(std::int64_t n, double distance) {
  check_samples(n, distance, "frequencies");
  const Tensor k = positions(n);
  return where(k < (n + 1) / 2, k, k - n).to(DType::F32) *
         (1 / (static_cast<double>(n) * distance));
}
Tensor real_frequencies(std::int64_t n, double distance) {
  check_samples(n, distance, "real_frequencies");
  return positions(n / 2 + 1).to(DType::F32) * (1 / (static_cast<double>(n) * distance));
}

Tensor shift(const Operand& a, const Axes& axes) {
  return rolled(a, axes, false, "shift");
}
Tensor unshift(const Operand& a, const Axes& axes) {
  return rolled(a, axes, true, "unshift");
}

} // namespace egret::fourier

// Windows, and transforms of the frames of signals.
#include "egret/functional/convolutions.h"
#include "egret/functional/fourier.h"
#include "egret/functional/math.h"

#include "support/checked.h"
#include "support/fail.h"
#include "tensor/complex_parts.h"
#include "tensor/ops.h"

#include <cmath>
#include <numbers>
#include <vector>

namespace egret::fourier {

using namespace egret::detail;

namespace {

// k over the period, from 0 to 1, in f64; an only element is 1/2, where windows are 1.
template <class F>
Tensor window(std::int64_t n, bool periodic, const char* who, F&& of) {
  if (n < 0)
    fail(ErrorKind::Value, "{}: {} numbers; the number must not be negative", who, n);
  const std::int64_t period = periodic ? n : n - 1;
  const Tensor k = iota(n, DType::F64);
  return of(n == 1 ? k + 0.5 : k / static_cast<double>(std::max<std::int64_t>(period, 1)))
      .to(DType::F32);
}

Tensor cosines(const Tensor& x, double a0, double a1, double a2 = 0) {
  const Tensor turn = x * (2 * std::numbers::pi);
  const Tensor y = a0 - cos(turn) * a1;
  return a2 == 0 ? y : y + cos(turn * 2.0) * a2;
}

// Frames of a transform, with what the options leave to defaults.
struct Frames {
  std::int64_t n, hop, before; ///< before: samples in front of the signal
  Tensor window;               ///< [n], empty: ones
  Norm norm;
};

Frames frames_of(std::int64_t n, const StftOptions& options, DType type, const char* who) {
  if (n < 1)
    fail(ErrorKind::Value, "{}: n_fft is {}; it must be positive", who, n);
  Frames f{n,
           options.hop.value_or(std::max<std::int64_t>(n / 4, 1)),
           options.center ? n / 2 : 0,
           {},
           options.normalized ? Norm::Ortho : Norm::Backward};
  if (f.hop < 1)
    fail(ErrorKind::Value, "{}: hop is {}; it must be positive", who, f.hop);
  if (!options.window.defined())
    return f;
  require_float(options.window, who);
  if (options.window.rank() != 1 || options.window.size(0) < 1 || options.window.size(0) > n)
    fail(ErrorKind::Shape, "{}: window {}; it must be a vector of 1 to n_fft = {} numbers", who,
         shape_of(options.window), n);
  const std::int64_t rest = n - options.window.size(0);
  f.window = pad(options.window.to(type), {rest / 2}, {rest - rest / 2});
  return f;
}

DType wide_type(const Tensor& a) {
  return a.dtype() == DType::F64 ? DType::F64 : DType::F32;
}

// The frames of a signal times the window, [..., frames, n_fft] in the type of the arithmetic.
Tensor frames_in(const Tensor& a, const Frames& f, PadMode mode, const char* who) {
  if (a.rank() < 1 || !a.shape().back().is_constant())
    fail(ErrorKind::Shape, "{}: got {}; it must be [..., samples], a known number of them", who,
         shape_of(a));
  const std::int64_t samples = a.size(-1), mirrored = mode == PadMode::Reflect ? 1 : 0;
  if (samples < f.n - 2 * f.before ||
      (f.before > 0 && mode != PadMode::Replicate && samples < f.before + mirrored) || samples < 1)
    fail(ErrorKind::Shape, "{}: {} samples are too few for frames of {}{}", who, samples, f.n,
         f.before > 0 ? fmt::format(" with {} more on either side", f.before) : "");
  Tensor x = a.to(wide_type(a));
  if (f.before > 0) {
    std::vector<std::int64_t> around(a.shape().size(), 0);
    around.back() = f.before;
    x = pad(x, around, around, mode);
  }
  x = egret::unfold(x, -1, f.n, f.hop);
  return f.window.defined() ? x * f.window : x;
}

// Frames as rows, [..., frames, n_fft], overlapped and added, over the overlapped squares of the
// window.
Tensor overlapped(const Tensor& frames, const Frames& f, std::optional<std::int64_t> length,
                  const char* who) {
  const std::int64_t count = frames.size(-2);
  const std::int64_t all =
      checked_add(f.n, checked_mul(f.hop, count - 1, fmt::format("{}: hop", who)),
                  fmt::format("{}: samples", who));
  const Tensor window = f.window.defined() ? f.window : ones({f.n}, frames.dtype());
  const FoldOptions overlap{.stride = f.hop};
  Shape shape(frames.shape().begin(), frames.shape().end() - 2);
  Expr signals(1);
  for (const Expr& dim : shape)
    signals = signals * dim;
  const Tensor columns = transpose(reshape(frames * window, {signals, count, f.n}));
  Tensor sums = fold1d(columns, all, f.n, overlap);
  Tensor weight = fold1d(expand(unsqueeze(square(window), 1), {f.n, count}), all, f.n, overlap);
  const std::int64_t kept =
      std::min(length.value_or(all), all - f.before - (length ? 0 : f.before));
  sums = sums.narrow(-1, f.before, kept);
  weight = weight.narrow(-1, f.before, kept);
  const Tensor met = weight > 1e-11;
  Tensor y = where(met, sums / where(met, weight, 1), 0);
  if (length && *length > kept)
    y = pad(y, {0, 0, 0}, {0, 0, *length - kept});
  shape.push_back(length.value_or(kept));
  return reshape(y, shape);
}

// Frames of a transform as rows, checked.
Complex transform_rows(const Complex& a, std::int64_t rows, std::optional<std::int64_t> length,
                       const char* who) {
  if (a.real.rank() < 2 || !(a.real.shape()[a.real.shape().size() - 2] == Expr(rows)) ||
      !a.real.shape().back().is_constant() || a.real.size(-1) < 1)
    fail(ErrorKind::Shape, "{}: got {}; it must be [..., {}, frames], a known number of them", who,
         shape_of(a.real), rows);
  if (length && *length < 0)
    fail(ErrorKind::Value, "{}: a length of {}; it must not be negative", who, *length);
  const DType type = wide_type(a.real);
  return {transpose(a.real.to(type)), transpose(a.imag.to(type))};
}

} // namespace

Tensor hann_window(std::int64_t n, bool periodic) {
  return window(n, periodic, "hann_window", [](const Tensor& x) { return cosines(x, 0.5, 0.5); });
}
Tensor hamming_window(std::int64_t n, bool periodic) {
  return window(n, periodic, "hamming_window",
                [](const Tensor& x) { return cosines(x, 0.54, 0.46); });
}
Tensor blackman_window(std::int64_t n, bool periodic) {
  return window(n, periodic, "blackman_window",
                [](const Tensor& x) { return cosines(x, 0.42, 0.5, 0.08); });
}
Tensor bartlett_window(std::int64_t n, bool periodic) {
  return window(n, periodic, "bartlett_window",
                [](const Tensor& x) { return 1 - abs(x * 2.0 - 1.0); });
}
Tensor kaiser_window(std::int64_t n, bool periodic, double beta) {
  if (!std::isfinite(beta))
    fail(ErrorKind::Value, "kaiser_window: beta is {}; it must be finite", beta);
  return window(n, periodic, "kaiser_window", [&](const Tensor& x) {
    const Tensor root = sqrt(maximum(1 - square(x * 2.0 - 1.0), 0.0)) * std::abs(beta);
    // I0(r) / I0(beta), each scaled by exp: neither overflows.
    return i0e(root) * exp(root - std::abs(beta)) / i0e(constant(DType::F64, std::abs(beta)));
  });
}

Complex stft(const Operand& a, std::int64_t n_fft, const StftOptions& options) {
  constexpr const char* who = "stft";
  Access::held(a, who);
  const Frames f = frames_of(n_fft, options, wide_type(a), who);
  const Tensor x = frames_in(a, f, options.pad, who);
  const Complex y = options.onesided ? rfft(x, -1, f.norm) : fft({x, zeros_like(x)}, -1, f.norm);
  const DType type = float_type(a);
  return {transpose(y.real).to(type), transpose(y.imag).to(type)};
}

Complex stft(const Complex& a, std::int64_t n_fft, const StftOptions& options) {
  constexpr const char* who = "stft";
  require_parts_alike(a, who);
  const Frames f = frames_of(n_fft, options, wide_type(a.real), who);
  const Complex y = fft(
      {frames_in(a.real, f, options.pad, who), frames_in(a.imag, f, options.pad, who)}, -1, f.norm);
  const DType type = float_type(a.real);
  return {transpose(y.real).to(type), transpose(y.imag).to(type)};
}

Tensor istft(const Complex& a, std::int64_t n_fft, const StftOptions& options,
             std::optional<std::int64_t> length) {
  constexpr const char* who = "istft";
  require_parts_alike(a, who);
  const Frames f = frames_of(n_fft, options, wide_type(a.real), who);
  const std::int64_t half = n_fft / 2 + 1;
  const Complex rows = transform_rows(a, options.onesided ? half : n_fft, length, who);
  // Of a real signal the other half are conjugates.
  const Complex first{rows.real.narrow(-1, 0, half), rows.imag.narrow(-1, 0, half)};
  const Tensor frames = named(who, [&] { return irfft(first, n_fft, -1, f.norm); });
  return overlapped(frames, f, length, who).to(float_type(a.real));
}

Complex complex_istft(const Complex& a, std::int64_t n_fft, const StftOptions& options,
                      std::optional<std::int64_t> length) {
  constexpr const char* who = "complex_istft";
  require_parts_alike(a, who);
  const Frames f = frames_of(n_fft, options, wide_type(a.real), who);
  const Complex frames =
      named(who, [&] { return ifft(transform_rows(a, n_fft, length, who), -1, f.norm); });
  const DType type = float_type(a.real);
  return {overlapped(frames.real, f, length, who).to(type),
          overlapped(frames.imag, f, length, who).to(type)};
}

} // namespace egret::fourier

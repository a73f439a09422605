// Windows, and transforms of the frames of signals.
#include "egret/functional/convolutions.h"
#include "egret/functional/fourier.h"
#include "egret/functional/math.h"

#include "support/checked.h"
#include "support/fail.h"
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
  if (a.rank() < 1 || !a.shape().back().is_constant())
    fail(ErrorKind::Shape, "{}: got {}; it must be [..., samples], a known number of them", who,
         shape_of(a));
  const DType type = is_float(a.dtype()) ? a.dtype() : DType::F32;
  Tensor x = a.to(wide_type(a));
  const Frames f = frames_of(n_fft, options, x.dtype(), who);
  const std::int64_t samples = a.size(-1), mirrored = options.pad == PadMode::Reflect ? 1 : 0;
  if (samples < n_fft - 2 * f.before ||
      (f.before > 0 && options.pad != PadMode::Replicate && samples < f.before + mirrored) ||
      samples < 1)
    fail(ErrorKind::Shape, "{}: {} samples are too few for frames of {}{}", who, samples, n_fft,
         f.before > 0 ? fmt::format(" around them, which {} on either side", f.before) : "");
  if (f.before > 0) {
    std::vector<std::int64_t> around(a.shape().size(), 0);
    around.back() = f.before;
    x = pad(x, around, around, options.pad);
  }
  x = egret::unfold(x, -1, n_fft, f.hop);
  if (f.window.defined())
    x = x * f.window;
  const Complex y = rfft(x, -1, f.norm);
  return {transpose(y.real).to(type), transpose(y.imag).to(type)};
}

Tensor istft(const Complex& a, std::int64_t n_fft, const StftOptions& options,
             std::optional<std::int64_t> length) {
  constexpr const char* who = "istft";
  Access::held(a.real, who);
  Access::held(a.imag, who);
  if (a.real.shape() != a.imag.shape())
    fail(ErrorKind::Shape, "{}: a real part {} and an imaginary part {}; shapes must be equal", who,
         shape_of(a.real), shape_of(a.imag));
  const DType type = is_float(a.real.dtype()) ? a.real.dtype() : DType::F32;
  const Frames f = frames_of(n_fft, options, wide_type(a.real), who);
  if (a.real.rank() < 2 || !(a.real.shape()[a.real.shape().size() - 2] == Expr(n_fft / 2 + 1)) ||
      !a.real.shape().back().is_constant() || a.real.size(-1) < 1)
    fail(ErrorKind::Shape, "{}: got {}; it must be [..., {}, frames], a known number of them", who,
         shape_of(a.real), n_fft / 2 + 1);
  if (length && *length < 0)
    fail(ErrorKind::Value, "{}: a length of {}; it must not be negative", who, *length);
  const std::int64_t frames = a.real.size(-1);
  const std::int64_t all =
      checked_add(n_fft, checked_mul(f.hop, frames - 1, "istft: hop"), "istft: samples");
  const auto given = [&](const Tensor& part) { return transpose(part.to(wide_type(a.real))); };
  const Tensor window = f.window.defined() ? f.window : ones({n_fft}, wide_type(a.real));
  const Tensor x = named(who,
                         [&] {
                           return irfft({given(a.real), given(a.imag)}, n_fft, -1, f.norm);
                         }) *
                   window;
  // Frames as columns, overlapped and added.
  const FoldOptions overlap{.stride = f.hop};
  Shape shape(a.real.shape().begin(), a.real.shape().end() - 2);
  Expr signals(1);
  for (const Expr& dim : shape)
    signals = signals * dim;
  Tensor sums = fold1d(transpose(reshape(x, {signals, frames, n_fft})), all, n_fft, overlap);
  const Tensor squares = expand(unsqueeze(square(window), 1), {n_fft, frames});
  Tensor weight = fold1d(squares, all, n_fft, overlap);
  const std::int64_t kept =
      std::min(length.value_or(all), all - f.before - (length ? 0 : f.before));
  sums = sums.narrow(-1, f.before, kept);
  weight = weight.narrow(-1, f.before, kept);
  const Tensor met = weight > 1e-11;
  Tensor y = where(met, sums / where(met, weight, 1), 0);
  if (length && *length > kept)
    y = pad(y, {0, 0, 0}, {0, 0, *length - kept});
  shape.push_back(length.value_or(kept));
  return reshape(y, shape).to(type);
}

} // namespace egret::fourier

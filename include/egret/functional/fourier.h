// Discrete Fourier transforms, by the rules of torch.fft. A complex value is two tensors.
//
// A transform of n = n1 · n2 is one of n1, factors of modulus 1, and one of n2 (Cooley and Tukey
// 1965), down to sizes at which a product with the matrix of the transform is fast; of a size with
// a prime factor above 64 it is a convolution (Bluestein 1970). All are products, maps and
// movements of the op table: they have gradients and run on every device.
#pragma once

#include "egret/functional/shapes.h"
#include "egret/tensor.h"

#include <optional>

namespace egret::fourier {

/// real + i · imag, of one shape and dtype.
struct Complex {
  Tensor real, imag;

  template <class V>
  void visit(V& v) {
    v("real", real);
    v("imag", imag);
  }
};
/// Products and sums; operands broadcast.
Complex operator*(const Complex& a, const Complex& b);
Complex operator+(const Complex& a, const Complex& b);
Complex operator-(const Complex& a, const Complex& b);
Complex conj(const Complex& a);
Tensor abs(const Complex& a);   ///< without overflow
Tensor angle(const Complex& a); ///< in -π .. π

/// By what results are multiplied: inverses by 1/n, both by 1/√n, or transforms by 1/n.
enum class Norm { Backward, Ortho, Forward };

// Of floats, in their dtype (f16 and bf16 are transformed in f32 and rounded once); integers and
// bools are transformed in f32. Sizes are known numbers. Error(Axis) for an axis that is out of
// range, Error(Shape) for an empty or symbolic axis and for parts of different shapes, Error(DType)
// for parts of different dtypes.
/// result[k] = sum over j of a[j] · exp(-2πi j k / n) along an axis, and its inverse. With `n` the
/// axis is first cut, or padded with zeros behind, to that size; Error(Value) unless it is
/// positive.
Complex fft(const Complex& a, std::int64_t axis = -1, Norm norm = Norm::Backward,
            std::optional<std::int64_t> n = {});
Complex ifft(const Complex& a, std::int64_t axis = -1, Norm norm = Norm::Backward,
             std::optional<std::int64_t> n = {});
/// The first n / 2 + 1 numbers of the transform of real ones; the others are their conjugates.
Complex rfft(const Operand& a, std::int64_t axis = -1, Norm norm = Norm::Backward,
             std::optional<std::int64_t> n = {});
/// The inverse, of `n` numbers (by default 2 (size - 1)): of n / 2 + 1, to which the axis is cut or
/// padded. The imaginary part of the first, and of an even n the last, does not count.
Tensor irfft(const Complex& a, std::optional<std::int64_t> n = {}, std::int64_t axis = -1,
             Norm norm = Norm::Backward);
/// Along several axes, of rfftn() and irfftn() the last one named as rfft() and irfft().
Complex fftn(const Complex& a, const Axes& axes = {}, Norm norm = Norm::Backward);
Complex ifftn(const Complex& a, const Axes& axes = {}, Norm norm = Norm::Backward);
Complex rfftn(const Operand& a, const Axes& axes = {}, Norm norm = Norm::Backward);
Tensor irfftn(const Complex& a, std::optional<std::int64_t> n = {}, const Axes& axes = {},
              Norm norm = Norm::Backward);

/// The frequency of each number of fft() (rfft()) for samples `distance` apart, f32.
Tensor frequencies(std::int64_t n, double distance = 1);
Tensor real_frequencies(std::int64_t n, double distance = 1);
/// The frequency 0 moved to the middle of the axes, and back.
Tensor shift(const Operand& a, const Axes& axes = {});
Tensor unshift(const Operand& a, const Axes& axes = {});

// Windows of n numbers, f32 (Harris 1978). A periodic one, as transforms of frames want it, is a
// symmetric one of n + 1 without its last number. Error(Value) for a negative n.
Tensor hann_window(std::int64_t n, bool periodic = true);    ///< 0.5 - 0.5 cos(2πk/n)
Tensor hamming_window(std::int64_t n, bool periodic = true); ///< 0.54 - 0.46 cos(2πk/n)
/// 0.42 - 0.5 cos(2πk/n) + 0.08 cos(4πk/n)
Tensor blackman_window(std::int64_t n, bool periodic = true);
Tensor bartlett_window(std::int64_t n, bool periodic = true); ///< a triangle from 0 to 1 to 0
/// I0(beta √(1 - (2k/n - 1)²)) / I0(beta); Error(Value) unless beta is finite.
Tensor kaiser_window(std::int64_t n, bool periodic = true, double beta = 12);

struct StftOptions {
  std::optional<std::int64_t> hop = {}; ///< samples from frame to frame; n_fft / 4 by default
  /// [length] of at most n_fft, zeros on both sides where it is shorter; by default ones of n_fft.
  Tensor window = {};
  /// Frame t is around sample t · hop, the signal padded by n_fft / 2 on either side; else it
  /// begins there.
  bool center = true;
  PadMode pad = PadMode::Reflect; ///< what stft() pads with
  bool normalized = false;        ///< by 1/√n_fft
  /// Half of the frequencies, of which the others are the conjugates; else all n_fft, which complex
  /// signals always have.
  bool onesided = true;
};
/// Transforms of frames: real signals [..., samples] give [..., n_fft / 2 + 1, frames], each frame
/// of n_fft samples times the window (torch.stft); [..., n_fft, frames] unless `onesided`.
/// Error(Value) for sizes that are not positive, Error(Shape) for a window or a signal that does
/// not fit.
Complex stft(const Operand& a, std::int64_t n_fft, const StftOptions& options = {});
/// The same of complex signals: [..., n_fft, frames], whatever `onesided` says.
Complex stft(const Complex& a, std::int64_t n_fft, const StftOptions& options = {});
/// The signal whose frames are nearest to `a` in the least squares (Griffin and Lim 1984): frames
/// times the window, overlapped and added, over the overlapped squares of the window; 0 where these
/// are below 1e-11. [..., samples], as many as lie between the centres of the first and the last
/// frame (without `center`, as the frames have), or `length` of them, zeros beyond the frames.
/// Unless `onesided`, `a` is [..., n_fft, frames], of which the first n_fft / 2 + 1 frequencies
/// count.
Tensor istft(const Complex& a, std::int64_t n_fft, const StftOptions& options = {},
             std::optional<std::int64_t> length = {});
/// The complex signal of [..., n_fft, frames], whatever `onesided` says (return_complex=True in
/// PyTorch).
Complex complex_istft(const Complex& a, std::int64_t n_fft, const StftOptions& options = {},
                      std::optional<std::int64_t> length = {});

} // namespace egret::fourier

// Discrete Fourier transforms, by the rules of torch.fft. A complex value is two tensors.
//
// A transform of n = n1 · n2 is one of n1, factors of modulus 1, and one of n2 (Cooley and Tukey
// 1965), down to sizes at which a product with the matrix of the transform is fast; of a size with
// a prime factor above 64 it is a convolution (Bluestein 1970). All are products, maps and
// movements of the op table: they have gradients and run on every device.
#pragma once

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
/// result[k] = sum over j of a[j] · exp(-2πi j k / n) along an axis, and its inverse.
Complex fft(const Complex& a, std::int64_t axis = -1, Norm norm = Norm::Backward);
Complex ifft(const Complex& a, std::int64_t axis = -1, Norm norm = Norm::Backward);
/// The first n / 2 + 1 numbers of the transform of real ones; the others are their conjugates.
Complex rfft(const Operand& a, std::int64_t axis = -1, Norm norm = Norm::Backward);
/// The inverse, of `n` numbers (by default 2 (size - 1)): size must be n / 2 + 1. The imaginary
/// part of the first, and of an even n the last, does not count.
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

} // namespace egret::fourier

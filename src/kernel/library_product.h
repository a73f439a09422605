// A product that a library of the device makes, in place of a kernel's own code.
#pragma once

#include <cstdint>

namespace egret::kernel {

/// result[b,i,j] = f(sum over k of left[b,i,k] * right[b,j,k] + bias[j]), summed in f32 and rounded
/// once, f being `activation`. Factors of f32 are multiplied as they are, never as tf32. Element
/// types are those of the buffers: one for both factors and the bias.
struct LibraryProduct {
  /// max(x, 0), and gelu in its tanh form.
  enum class Activation : std::uint8_t { None, Relu, Gelu };
  /// An element lies at offset + b * batch + i * row + k * column of a buffer: b, i and j stand for
  /// the batch, the row (of `right` j) and the column (of factors the depth). One of row and
  /// column is 1.
  struct Matrix {
    int buffer = -1;
    std::int64_t offset = 0, batch = 0, row = 0, column = 0;
    friend bool operator==(const Matrix&, const Matrix&) = default;
  };
  Matrix left, right, result; ///< the result's columns are neighbours
  std::int64_t batches = 1, rows = 1, columns = 1, depth = 1;
  int bias = -1; ///< a buffer with an element for each column; -1: none
  std::int64_t bias_offset = 0;
  Activation activation = Activation::None;
  int workspace = -1; ///< a buffer of bytes that the library may use
  int rank = 0;       ///< which of the library's ways, that it thinks best first
  friend bool operator==(const LibraryProduct&, const LibraryProduct&) = default;
};

const char* name_of(LibraryProduct::Activation activation) noexcept;

} // namespace egret::kernel

// Integers of fewer than 8 bits, several in a byte, and matrices quantized to them. Bits are taken
// apart by shifts and masks of the graph, so that a product reads the packed bytes themselves.
#pragma once

#include "egret/tensor.h"

#include <cstdint>

namespace egret {

/// u8 [..., n], each value below 2^bits, to u8 [..., n bits / 8]: the first value of a byte in its
/// lowest bits. `bits` is 1, 2 or 4 and n a multiple of 8 / bits. Higher bits of the values are
/// lost.
Tensor pack_bits(const Operand& values, int bits);
/// The reverse: u8 [..., m] to u8 [..., 8 m / bits].
Tensor unpack_bits(const Operand& packed, int bits);

/// A tensor as small integers with a scale for each group of neighbours along the last axis:
/// value = (integer - 2^(bits-1)) scale.
struct Quantized {
  Tensor packed; ///< u8 [..., n bits / 8], as pack_bits gives
  Tensor scale;  ///< [..., n / group], of the tensor's dtype
  int bits = 4;
  std::int64_t group = 32;

  template <class V>
  void visit(V& v) {
    v("packed", packed);
    v("scale", scale);
    v("bits", bits);
    v("group", group);
  }
};

/// Rounds a float tensor [..., n] to integers of 2, 4 or 8 bits. The scale of a group is its
/// largest magnitude over 2^(bits-1) - 1 (0 for a group of zeros), rounded to the tensor's dtype. n
/// is a multiple of `group`, a group one of 8 / bits. NaN and infinities give groups of NaN.
Quantized quantize(const Operand& a, int bits = 4, std::int64_t group = 32);
/// The values that the integers stand for, in the scale's dtype.
Tensor dequantize(const Quantized& q);

} // namespace egret

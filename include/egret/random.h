// Counter-based random numbers: integer primitives of the graph, so every backend draws the same
// bits.
#pragma once

#include "egret/tensor.h"

#include <cstdint>

namespace egret {

/// A stream of random numbers. Number i of the stream with key k is squares(i, k) of B. Widynski,
/// "Squares: A Fast Counter-Based RNG" (2020), four rounds, 32 bits, in u64 arithmetic; the key is
/// made from the seed. The state (the key and the count of numbers drawn) is a pair of tensors, so
/// a compiled function that draws advances it at every call: no mask is ever repeated.
///
/// A Generator is a handle like a Tensor: copies share the state. Threads that draw from one at
/// once get numbers of their own each, in whichever order. A Graph draws anew at every execute().
class Generator {
public:
  explicit Generator(std::uint64_t seed = 0);
  void seed(std::uint64_t seed); ///< starts the stream of `seed` from its beginning

  /// The next numel(shape) numbers of the stream, u32 values in a u64 tensor.
  Tensor bits(const Shape& shape);

  Tensor key;     ///< u64, rank 0
  Tensor counter; ///< u64, rank 0: numbers drawn so far

  template <class V>
  void visit(V& v) {
    v("key", key);
    v("counter", counter);
  }
};

// Error(DType) for a dtype that is no float, Error(Shape) for a negative dim.

/// Uniform in [0, 1): multiples of 2^-24 (f32, f64: 2^-53, f16: 2^-11, bf16: 2^-8, f8e4m3: 2^-4,
/// f8e5m2: 2^-3).
Tensor rand(const Shape& shape, Generator& generator, DType dtype = DType::F32);
/// Uniform in [low, high); Error(Value) unless low <= high, both finite.
Tensor uniform(const Shape& shape, double low, double high, Generator& generator,
               DType dtype = DType::F32);
/// Standard normal, by Box and Muller: √(-2 ln u) cos 2πv, u in (0, 1].
Tensor randn(const Shape& shape, Generator& generator, DType dtype = DType::F32);
/// mean + deviation · randn(); Error(Value) for a negative deviation, or where one is not finite.
Tensor normal(const Shape& shape, double mean, double deviation, Generator& generator,
              DType dtype = DType::F32);
/// Integers in [low, high), of an integer dtype (Error(DType)): the top bits of a 32-bit number
/// times the width. Error(Value) unless low < high <= low + 2^32 and the dtype has them all.
Tensor randint(const Shape& shape, std::int64_t low, std::int64_t high, Generator& generator,
               DType dtype = DType::I64);
/// true with probability p (a multiple of 2^-32); Error(Value) for p outside of 0..1.
Tensor bernoulli(const Shape& shape, double p, Generator& generator);
/// true with the probability that stands at each place (of floats).
Tensor bernoulli(const Operand& probabilities, Generator& generator);
/// -log(u) / rate
Tensor exponential(const Shape& shape, double rate, Generator& generator, DType dtype = DType::F32);
/// -log(-log(u)): the larger of two is distributed as a softmax chooses
Tensor gumbel(const Shape& shape, Generator& generator, DType dtype = DType::F32);
/// normal() with what lies outside [low, high] left out, by the inverse of its distribution.
Tensor truncated_normal(const Shape& shape, double mean, double deviation, double low, double high,
                        Generator& generator, DType dtype = DType::F32);
/// 0 .. n-1 in random order, i64: sorted by 64 random bits.
Tensor permutation(std::int64_t n, Generator& generator);
/// Positions (i64 [..., count]) along the last axis of weights [..., n], each chosen as often as
/// its weight says; without replacement each at most once (count at most n, and of the positive
/// ones).
Tensor multinomial(const Operand& weights, std::int64_t count, Generator& generator,
                   bool replacement = false);

} // namespace egret

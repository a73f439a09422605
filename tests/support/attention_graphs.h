// Attention as its formula says, in many variants, with its gradients.
#pragma once

#include "egret/ir.h"

#include <cstdint>
#include <vector>

namespace egret::testing {

/// Length: keys up to one that a number says, the same for all rows.
enum class Mask { None, Causal, Window, Given, Length };

struct Attention {
  const char* name;
  std::int64_t batch, heads, shared; ///< `shared` heads of queries have the same keys
  std::int64_t queries, keys, width, value_width;
  DType type;
  Mask mask;
  bool bias, capped, gradients;
  std::int64_t blocks = 0; ///< if any: keys and values are gathered from so many, by a table
};

/// Small ones of every kind.
const std::vector<Attention>& attentions();

/// The result, and with `gradients` those by queries, keys and values.
ir::Graph attention_graph(const Attention& f);

/// Something like attention, put together at random from masks, biases, scales, caps, heads that
/// share keys, and ways to normalise, the wrong ones among them: a mask behind the softmax, a
/// maximum along the other axis, none, another divisor.
ir::Graph random_attention(std::uint64_t seed);

} // namespace egret::testing

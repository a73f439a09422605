// The part of what was recorded that gradients flow through.
#pragma once

#include "tensor/derivatives.h"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace egret::detail {

/// The operations between some outputs and what they are differentiated by. Everything else that
/// they read enters as values. Its members are *places*, operands first.
struct Recipe {
  static constexpr std::uint32_t kOnes = std::numeric_limits<std::uint32_t>::max();
  struct Entry {
    NodePtr node;
    std::array<std::uint32_t, Inputs::kMost> operands{};
    std::uint8_t count = 0; ///< of operands
    bool operation = false; ///< else a value
  };
  std::vector<Entry> entries;
  std::size_t forward = 0;                       ///< how many of the entries the outputs need
  std::vector<std::uint32_t> outputs, seeds, by; ///< kOnes: no seed is given
  /// Where the forms of the entries are, and how they hang together: with the same forms the same
  /// recipe. Empty for recipes of traced functions and graphs, which are differentiated once.
  std::vector<std::uint64_t> forms;
};

/// All that derivatives of the recipe depend on: equal words, equal derivatives.
std::vector<std::uint64_t> words_of(const Recipe& recipe);

/// Throws Error(State) for a value on the way that can pass no gradient on.
Recipe recipe_of(const DerivativeQuery& query);

} // namespace egret::detail

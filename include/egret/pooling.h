// How the hidden states of a text's tokens become one embedding.
#pragma once

#include <cstdint>

namespace egret::models {

enum class Pooling : std::uint8_t {
  Mean,  ///< the mean over the tokens
  Last,  ///< of the last token
  First, ///< of the first token, [CLS]
  Max    ///< the largest over the tokens, by component
};

} // namespace egret::models

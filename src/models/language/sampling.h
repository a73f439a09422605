// The next token from logits.
#pragma once

#include "egret/language_model.h"

#include <cstdint>
#include <map>
#include <set>
#include <span>

namespace egret::models::language {

/// Error(Value) for options out of range, naming the option.
void require_valid(const GenerateOptions& options);

/// Draws the tokens of one text.
class Sampler {
public:
  /// The prompt counts as seen.
  Sampler(GenerateOptions options, std::span<const int> prompt);

  /// The next token from its logits [vocabulary]: repetition penalty for tokens seen (Keskar et al.
  /// 2019), presence and frequency penalties for those drawn, then the likeliest at temperature 0,
  /// else softmax(logits / temperature) among those that top_k, top_p (Holtzman et al. 2020) and
  /// min_p leave. Ties go to the lower number. Error(Value) for NaN.
  int next(std::span<const float> logits);

private:
  GenerateOptions options_;
  std::set<int> seen_;
  std::map<int, std::int64_t> drawn_; ///< how often each
  std::uint64_t state_;
};

} // namespace egret::models::language

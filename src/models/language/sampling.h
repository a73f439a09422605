// The next token from logits.
#pragma once

#include "egret/grammar.h"
#include "egret/language_model.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace egret::models::language {

/// Error(Value) for options out of range, naming the option.
void require_valid(const GenerateOptions& options);

struct Draw {
  int token;
  std::optional<Logprobs> logprobs;
};

/// Draws the tokens of one text.
class Sampler {
public:
  /// The prompt counts as seen; `stop` are the tokens that end the text.
  Sampler(GenerateOptions options, std::span<const int> prompt, std::vector<int> stop);

  /// The next token from its logits [vocabulary]: repetition penalty for tokens seen (Keskar et al.
  /// 2019), presence and frequency penalties for those sampled, what the grammar leaves, then the
  /// likeliest at temperature 0, else softmax(logits / temperature) among those that top_k, top_p
  /// (Holtzman et al. 2020) and min_p leave. Ties go to the lower number. Nothing where the grammar
  /// says that the text has ended, and no stop token can. Error(Value) for NaN, and where no token
  /// continues the text by the grammar.
  std::optional<Draw> next(std::span<const float> logits);
  bool stops(int token) const;

private:
  bool forbid(std::span<float> logits);

  GenerateOptions options_;
  std::vector<int> stop_;
  std::set<int> seen_;
  std::map<int, std::int64_t> drawn_; ///< how often each
  std::optional<GrammarMatcher> matcher_;
  std::uint64_t state_;
};

} // namespace egret::models::language

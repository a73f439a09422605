// The next token from logits.
#pragma once

#include "egret/language_model.h"

#include <cstdint>
#include <set>
#include <vector>

namespace egret::models::language {

/// Error(Value) for options out of range, naming the option.
void require_valid(const GenerateOptions& options);

/// Draws a token: repetition penalty for tokens in `seen` (Keskar et al. 2019), then the likeliest
/// at temperature 0, else softmax(logits / temperature) among those that top_k, top_p (Holtzman et
/// al. 2020) and min_p leave. Ties go to the lower number. Advances `state`.
int next_token(std::vector<float> logits, const std::set<int>& seen, const GenerateOptions& options,
               std::uint64_t& state);

} // namespace egret::models::language

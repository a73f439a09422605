// What a model that is written in another format must keep.
#pragma once

#include "egret/language_model.h"

#include <cstdint>
#include <vector>

namespace egret::models::language {

/// What of two configurations gives other logits, for people; null: nothing. Numbers may differ by
/// what f32 rounds.
const char* difference(const LanguageConfig& read, const LanguageConfig& wanted);

/// GGUF files of some architectures have a head's rotary pairs as neighbours: the row of a folder's
/// matrix, with so many heads, that each row there is.
std::vector<std::int64_t> interleaved_rows(const LanguageConfig& config, std::int64_t heads);

} // namespace egret::models::language

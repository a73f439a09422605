// Whether a model has place, before any of its weights is read.
#pragma once

#include "egret/language_model.h"
#include "models/language/cached_model.h"

#include <cstdint>
#include <string>

namespace egret::models::language {

/// Error(Memory) naming `path`, what weights and cache need, what is free on the device in use and
/// what would fit, unless both have place. Nothing where what is free is not known.
void require_memory(const std::string& path, std::int64_t weight_bytes,
                    const LanguageConfig& config, const CacheSizes& sizes);

} // namespace egret::models::language

// config.json in the words of transformers, for a model that was read from another format.
#pragma once

#include "egret/language_model.h"
#include "models/language/architecture.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace egret::models::language {

/// Of the rows whose GGUF files have the architecture of `row`, the one for such a model.
/// Error(Unsupported) where none is.
const Architecture& hub_row(const Architecture& row, const LanguageConfig& config,
                            const std::string& where);

struct HubModel {
  const Architecture& row;
  const LanguageConfig& config; ///< without the divisors below
  const nlohmann::json& keys;   ///< config_of_gguf()
  /// Of the frequencies, from tensors; empty: there are none.
  std::vector<float> divisors, long_divisors, short_divisors;
  bool attention_bias = false, mlp_bias = false;
  DType dtype = DType::F32;
  std::optional<std::int64_t> begin, padding; ///< tokens
};

/// Error(Unsupported) that says what transformers has no key for; `where` begins it.
nlohmann::ordered_json hub_config(const HubModel& model, const std::string& where);

} // namespace egret::models::language

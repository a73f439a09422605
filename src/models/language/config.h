// The configuration of a language model from config.json, or from a GGUF file's metadata put in the
// same words.
#pragma once

#include "egret/gguf.h"
#include "egret/language_model.h"
#include "models/keys.h"
#include "models/language/architecture.h"

#include <nlohmann/json.hpp>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace egret::models::language {

inline constexpr std::int64_t kMostLayers = 4096;

/// Keys of a GGUF file for tokens that end a text.
inline constexpr std::array kStopKeys = {
    "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};

/// `keys` are those of config.json; Error as Keys, and Error(File) for values that contradict each
/// other. `context` is that of the cache, 0 for the model's own: longrope chooses by it.
LanguageConfig read_config(Keys& keys, const Architecture& architecture, std::int64_t context);

/// The keys of a GGUF file in the words of config.json; without a key for it, the vocabulary is the
/// number of rows of the embedding. Error(Unsupported) for a key of the architecture that egret
/// does not know.
nlohmann::json config_of_gguf(const io::GgufMetadata& metadata,
                              const std::vector<io::GgufTensorInfo>& tensors,
                              const Architecture& architecture, const std::string& where,
                              const std::vector<std::string>& ignored);

/// What config.json says of rotary positions, of all layers and of sliding ones where they have
/// their own, in the words of transformers 5.
struct RotaryParameters {
  nlohmann::json all;
  std::optional<nlohmann::json> sliding;
};
RotaryParameters rotary_parameters(Keys& keys);

/// What YaRN multiplies cosine and sine by unless the configuration says otherwise.
double yarn_growth(double factor, double scale = 1);

/// Frequencies of `dims` dims from the keys that transformers calls rope parameters: rope_type,
/// rope_theta, factor and what the type needs. `most` is the model's context, `used` the cache's.
Rotary rotary_of(Keys& keys, std::int64_t head_size, std::int64_t most, std::int64_t used);

} // namespace egret::models::language

// Whisper (Radford et al. 2022), written with the public functions.
#pragma once

#include "egret/speech_model.h"
#include "egret/tree.h"
#include "models/keys.h"
#include "models/parameter_reader.h"

#include <filesystem>
#include <optional>
#include <vector>

namespace egret::models::speech {

/// Error as Keys. Tokens and front end are read elsewhere.
SpeechConfig read_speech_config(Keys& keys);
/// What generation_config.json and preprocessor_config.json say, where they are there. Error(File)
/// for tokens that are not in the vocabulary and for a front end that does not fit the model.
void read_speech_files(const std::filesystem::path& folder, SpeechConfig& config);

struct SpeechAttention {
  nn::Linear query, key, value, output; ///< keys have no bias
  EGRET_FIELDS(query, key, value, output)
};

struct SpeechLayer {
  nn::LayerNorm attention_norm;
  SpeechAttention attention;
  std::optional<nn::LayerNorm> sound_norm; ///< of the decoder: attention to the encoder's states
  std::optional<SpeechAttention> sound;
  nn::LayerNorm mlp_norm;
  nn::Linear up, down;
  EGRET_FIELDS(attention_norm, attention, sound_norm, sound, mlp_norm, up, down)
};

struct SpeechEncoder {
  Tensor weight1, bias1, weight2, bias2; ///< of two convolutions along time
  nn::Embedding positions;
  std::vector<SpeechLayer> layers;
  nn::LayerNorm norm;
  EGRET_FIELDS(weight1, bias1, weight2, bias2, positions, layers, norm)

  /// States [sound_positions, width] of frames [bins, 2 sound_positions].
  Tensor operator()(const SpeechConfig& config, const Tensor& frames) const;
};

/// Keys and values of the encoder's states for each layer of the decoder.
struct SoundCache {
  std::vector<nn::KeyValueCache> layers; ///< [1, heads, sound_positions, width / heads]
  EGRET_FIELDS(layers)
};

/// Keys and values of the tokens read so far, state in place.
struct TokenCache {
  std::vector<nn::KeyValueCache> layers; ///< [1, heads, text_positions, width / heads]
  EGRET_FIELDS(layers)
};

struct SpeechDecoder {
  nn::Embedding tokens, positions;
  std::vector<SpeechLayer> layers;
  nn::LayerNorm norm;
  EGRET_FIELDS(tokens, positions, layers, norm)

  SoundCache sound_cache(const SpeechConfig& config, const Tensor& states) const;
  TokenCache token_cache(const SpeechConfig& config) const;
  /// Logits f32 [tokens, vocabulary] of ids [tokens] at the positions from `begin` (i64, rank 0)
  /// on; the cache holds them too afterwards.
  Tensor operator()(const SpeechConfig& config, const Tensor& ids, const Tensor& begin,
                    const SoundCache& sound, TokenCache& cache) const;
};

struct Whisper {
  SpeechEncoder encoder;
  SpeechDecoder decoder;
  EGRET_FIELDS(encoder, decoder)
};

/// Errors as ParameterReader::read().
Whisper read_whisper(ParameterReader& reader, const SpeechConfig& config);

} // namespace egret::models::speech

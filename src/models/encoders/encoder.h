// The encoder of text, written with the public functions: one transformer for all architectures.
#pragma once

#include "egret/text_encoder.h"
#include "egret/tree.h"
#include "models/keys.h"
#include "models/parameter_reader.h"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::models::encoders {

/// Names of a layer's parts in the files, without ".weight" and ".bias".
struct LayerNames {
  const char *query, *key, *value, *output, *attention_norm, *up, *down, *output_norm;
};

/// What tells architectures apart.
struct EncoderRow {
  std::string_view name; ///< model_type of config.json
  const char* prefix;    ///< of names, where the file was saved with a task's head
  const char* layers;    ///< before a layer's number
  LayerNames names;
  bool positions_after_pad = false; ///< the first token has the position behind the pad token's
  bool types = true;                ///< there is a table of kinds of tokens
  bool distances = false;           ///< relative positions are added to scores, as in T5
};

std::span<const EncoderRow> encoder_rows();
/// Error(Unsupported) that names `where` and those that are known.
const EncoderRow& encoder_row(std::string_view name, const std::string& where);

/// Error as Keys, and Error(File) for values that contradict each other.
TextEncoderConfig read_encoder_config(Keys& keys, const EncoderRow& row);

struct EncoderLayer {
  nn::Linear query, key, value, output;
  nn::LayerNorm attention_norm;
  nn::Linear up, down;
  nn::LayerNorm output_norm;
  EGRET_FIELDS(query, key, value, output, attention_norm, up, down, output_norm)
};

struct Encoder {
  nn::Embedding words, positions;
  std::optional<nn::Embedding> types;
  nn::LayerNorm norm;
  std::optional<nn::Linear> projection; ///< from the tables' width
  std::vector<EncoderLayer> layers;
  std::optional<nn::Embedding> distances; ///< [buckets, heads]
  EGRET_FIELDS(words, positions, types, norm, projection, layers, distances)

  /// Hidden states [rows, tokens, width] of tokens and types [rows, tokens], of which the first
  /// `lengths` [rows] are a text's, all i64.
  Tensor operator()(const TextEncoderConfig& config, const Tensor& tokens, const Tensor& kinds,
                    const Tensor& lengths) const;
};

/// Errors as ParameterReader::read().
Encoder read_encoder(ParameterReader& reader, const TextEncoderConfig& config,
                     const EncoderRow& row);

} // namespace egret::models::encoders

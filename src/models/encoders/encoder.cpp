#include "models/encoders/encoder.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/printable.h"

#include <array>
#include <cmath>
#include <limits>

namespace egret::models::encoders {

namespace {

constexpr std::int64_t kMost = 1 << 24; // of any size

constexpr LayerNames kBertNames = {"attention.self.query",
                                   "attention.self.key",
                                   "attention.self.value",
                                   "attention.output.dense",
                                   "attention.output.LayerNorm",
                                   "intermediate.dense",
                                   "output.dense",
                                   "output.LayerNorm"};

constexpr std::array kRows = {
    EncoderRow{.name = "bert", .prefix = "bert.", .layers = "encoder.layer.", .names = kBertNames},
    EncoderRow{.name = "roberta",
               .prefix = "roberta.",
               .layers = "encoder.layer.",
               .names = kBertNames,
               .positions_after_pad = true},
    EncoderRow{.name = "xlm-roberta",
               .prefix = "roberta.",
               .layers = "encoder.layer.",
               .names = kBertNames,
               .positions_after_pad = true},
    EncoderRow{.name = "camembert",
               .prefix = "roberta.",
               .layers = "encoder.layer.",
               .names = kBertNames,
               .positions_after_pad = true},
    EncoderRow{
        .name = "electra", .prefix = "electra.", .layers = "encoder.layer.", .names = kBertNames},
    EncoderRow{.name = "distilbert",
               .prefix = "distilbert.",
               .layers = "transformer.layer.",
               .names = {"attention.q_lin", "attention.k_lin", "attention.v_lin",
                         "attention.out_lin", "sa_layer_norm", "ffn.lin1", "ffn.lin2",
                         "output_layer_norm"},
               .types = false},
    EncoderRow{.name = "mpnet",
               .prefix = "mpnet.",
               .layers = "encoder.layer.",
               .names = {"attention.attn.q", "attention.attn.k", "attention.attn.v",
                         "attention.attn.o", "attention.LayerNorm", "intermediate.dense",
                         "output.dense", "output.LayerNorm"},
               .positions_after_pad = true,
               .types = false,
               .distances = true},
};

/// Keys that say nothing of hidden states.
constexpr Keys::Names kIrrelevant = {"architectures",
                                     "model_type",
                                     "transformers_version",
                                     "use_cache",
                                     "initializer_range",
                                     "_name_or_path",
                                     "name_or_path",
                                     "bos_token_id",
                                     "eos_token_id",
                                     "tie_word_embeddings",
                                     "tie_weights_",
                                     "attention_probs_dropout_prob",
                                     "hidden_dropout_prob",
                                     "attention_dropout",
                                     "dropout",
                                     "qa_dropout",
                                     "seq_classif_dropout",
                                     "classifier_dropout",
                                     "sinusoidal_pos_embds",
                                     "summary_activation",
                                     "summary_last_dropout",
                                     "summary_type",
                                     "summary_use_proj",
                                     "directionality",
                                     "pooler_fc_size",
                                     "pooler_num_attention_heads",
                                     "pooler_num_fc_layers",
                                     "pooler_size_per_head",
                                     "pooler_type",
                                     "gradient_checkpointing",
                                     "output_past",
                                     "id2label",
                                     "label2id",
                                     "problem_type",
                                     "dtype",
                                     "torch_dtype"};

/// T5's buckets of relative positions (Raffel et al. 2020), half of them for keys behind the query:
/// near ones by themselves, farther ones by logarithm up to 128. i64 [tokens, tokens].
Tensor distance_buckets(const Expr& count, std::int64_t buckets) {
  constexpr double kFarthest = 128;
  const Tensor place = positions(count);
  const Tensor distance = place.unsqueeze(-1) - place;
  const std::int64_t half = buckets / 2, exact = half / 2;
  const Tensor far = abs(distance), steps = log(far.to(DType::F32) * (1.0 / double(exact)));
  const double scale = double(half - exact) / std::log(kFarthest / double(exact));
  const Tensor grown = clamp(floor(steps * scale), 0, half - exact - 1).to(DType::I64) + exact;
  return where(distance < 0, half, 0) + where(far < exact, far, grown);
}

} // namespace

std::span<const EncoderRow> encoder_rows() {
  return kRows;
}

const EncoderRow& encoder_row(std::string_view name, const std::string& where) {
  std::vector<std::string_view> known;
  for (const EncoderRow& row : kRows) {
    if (row.name == name)
      return row;
    known.push_back(row.name);
  }
  fail(ErrorKind::Unsupported, "{}: egret does not know the encoder '{}'; it knows {}", where,
       printable(name), fmt::join(known, ", "));
}

TextEncoderConfig read_encoder_config(Keys& keys, const EncoderRow& row) {
  TextEncoderConfig c;
  c.architecture = row.name;
  c.vocabulary = keys.integer({"vocab_size"}, 1, kMost);
  c.width = keys.integer({"hidden_size", "dim"}, 1, kMost);
  c.embedding_width = keys.integer({"embedding_size"}, 1, kMost, c.width);
  c.layers = keys.integer({"num_hidden_layers", "n_layers"}, 1, 4096);
  c.heads = keys.integer({"num_attention_heads", "n_heads"}, 1, kMost);
  if (c.width % c.heads != 0)
    fail(ErrorKind::File, "{}: {} heads do not divide a width of {}", keys.where(), c.heads,
         c.width);
  c.hidden = keys.integer({"intermediate_size", "hidden_dim"}, 1, kMost);
  c.positions = keys.integer({"max_position_embeddings"}, 1, kMost);
  c.pad = keys.integer({"pad_token_id"}, 0, c.vocabulary - 1, row.positions_after_pad ? 1 : 0);
  c.first_position = row.positions_after_pad ? c.pad + 1 : 0;
  if (c.first_position >= c.positions)
    fail(ErrorKind::File, "{}: {} positions, the first text token has position {}", keys.where(),
         c.positions, c.first_position);
  c.types = row.types ? keys.integer({"type_vocab_size"}, 0, kMost, 2) : 0;
  if (row.distances)
    c.distance_buckets = keys.integer({"relative_attention_num_buckets"}, 4, 65536, 32);
  c.norm_eps = keys.number({"layer_norm_eps"}, 0, 1, 1e-12);
  c.activation =
      models::activation_named(keys.text({"hidden_act", "activation"}, "gelu"), keys.where());
  if (const std::string kind = keys.text({"position_embedding_type"}, "absolute");
      kind != "absolute")
    fail(ErrorKind::Unsupported,
         "{}: 'position_embedding_type': egret does not know '{}'; it knows absolute", keys.where(),
         printable(kind));
  for (const char* name : kIrrelevant)
    keys.find({name});
  return c;
}

Tensor Encoder::operator()(const TextEncoderConfig& c, const Tensor& tokens, const Tensor& kinds,
                           const Tensor& lengths) const {
  const Expr rows = tokens.shape()[0], count = tokens.shape()[1];
  Tensor x = words(tokens) + positions(egret::positions(count) + c.first_position);
  if (types)
    x = x + (*types)(kinds);
  x = norm(x);
  if (projection)
    x = (*projection)(x);
  Tensor mask = (egret::positions(count) < lengths.unsqueeze(-1)).unsqueeze(1).unsqueeze(1);
  if (distances) {
    const Tensor bias = (*distances)(distance_buckets(count, c.distance_buckets));
    mask = where(mask, bias.permute({2, 0, 1}).to(DType::F32),
                 -std::numeric_limits<double>::infinity());
  }
  const auto by_head = [&](const Tensor& a) {
    return a.reshape({rows, count, c.heads, c.width / c.heads}).transpose(1, 2);
  };
  for (const EncoderLayer& layer : layers) {
    const Tensor mixed = scaled_dot_product_attention(
        by_head(layer.query(x)), by_head(layer.key(x)), by_head(layer.value(x)), {.mask = mask});
    x = layer.attention_norm(x +
                             layer.output(mixed.transpose(1, 2).reshape({rows, count, c.width})));
    x = layer.output_norm(x + layer.down(nn::activate(c.activation, layer.up(x))));
  }
  return x;
}

Encoder read_encoder(ParameterReader& reader, const TextEncoderConfig& c, const EncoderRow& row) {
  reader.find_prefix({row.prefix, ""}, "embeddings.word_embeddings.weight");
  const std::string prefix = row.prefix;
  const OtherTensors others = {.begins = {"cls.", "lm_head.", "classifier.", "pre_classifier.",
                                          "qa_outputs.", "vocab_", "discriminator_predictions.",
                                          "generator_", "pooler.", prefix + "pooler."},
                               .ends = {"position_ids"}};
  const auto model = [&](ParameterReader& r) {
    Encoder e;
    e.words = r.embedding("embeddings.word_embeddings", c.vocabulary, c.embedding_width);
    e.positions = r.embedding("embeddings.position_embeddings", c.positions, c.embedding_width);
    if (c.types > 0)
      e.types = r.embedding("embeddings.token_type_embeddings", c.types, c.embedding_width);
    e.norm = r.layer_norm("embeddings.LayerNorm", c.embedding_width, c.norm_eps);
    if (c.embedding_width != c.width)
      e.projection = r.linear("embeddings_project", c.embedding_width, c.width);
    for (std::int64_t i = 0; i < c.layers; ++i) {
      const auto at = [&](const char* part) { return fmt::format("{}{}.{}", row.layers, i, part); };
      EncoderLayer layer;
      layer.query = r.linear(at(row.names.query), c.width, c.width);
      layer.key = r.linear(at(row.names.key), c.width, c.width);
      layer.value = r.linear(at(row.names.value), c.width, c.width);
      layer.output = r.linear(at(row.names.output), c.width, c.width);
      layer.attention_norm = r.layer_norm(at(row.names.attention_norm), c.width, c.norm_eps);
      layer.up = r.linear(at(row.names.up), c.width, c.hidden);
      layer.down = r.linear(at(row.names.down), c.hidden, c.width);
      layer.output_norm = r.layer_norm(at(row.names.output_norm), c.width, c.norm_eps);
      e.layers.push_back(std::move(layer));
    }
    if (c.distance_buckets > 0)
      e.distances = r.embedding("encoder.relative_attention_bias", c.distance_buckets, c.heads);
    return e;
  };
  return reader.read(model, fmt::format("an encoder of the architecture '{}'", row.name), others);
}

} // namespace egret::models::encoders

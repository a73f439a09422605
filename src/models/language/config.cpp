#include "models/language/config.h"

#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <cmath>

namespace egret::models::language {

namespace {

using nlohmann::json;

constexpr std::int64_t kMostSize = 1 << 24; // of any dim
constexpr std::int64_t kMostContext = 1 << 30;

/// Keys that say nothing of what logits are.
constexpr Keys::Names kWithoutEffect = {"architectures",
                                        "transformers_version",
                                        "use_cache",
                                        "initializer_range",
                                        "_name_or_path",
                                        "name_or_path",
                                        "pretraining_tp",
                                        "bos_token_id",
                                        "pad_token_id",
                                        "attention_dropout",
                                        "attn_pdrop",
                                        "embd_pdrop",
                                        "resid_pdrop",
                                        "embd_dropout",
                                        "hidden_dropout",
                                        "resid_dropout",
                                        "summary_activation",
                                        "summary_first_dropout",
                                        "summary_proj_to_labels",
                                        "summary_type",
                                        "summary_use_proj",
                                        "task_specific_params",
                                        "output_router_logits",
                                        "router_aux_loss_coef",
                                        "router_jitter_noise",
                                        "id2label",
                                        "label2id",
                                        "cache_implementation",
                                        "auto_map",
                                        "n_ctx",
                                        "reorder_and_upcast_attn",
                                        "model_type",
                                        "return_dict",
                                        "chunk_size_feed_forward",
                                        "unsloth_fixed",
                                        "unsloth_version",
                                        "is_decoder",
                                        "problem_type",
                                        "is_llama_config",
                                        "rope_interleaved",
                                        "max_window_layers",
                                        "use_sliding_window",
                                        "_sliding_window_pattern"};

void read_sizes(Keys& keys, const Architecture& row, LanguageConfig& c) {
  c.vocabulary = keys.integer({"vocab_size"}, 1, kMostSize);
  c.width = keys.integer({"hidden_size", "n_embd"}, 1, kMostSize);
  c.layers = keys.integer({"num_hidden_layers", "n_layer"}, 1, kMostLayers);
  c.heads = keys.integer({"num_attention_heads", "n_head"}, 1, kMostSize);
  c.kv_heads = keys.integer({"num_key_value_heads"}, 1, kMostSize, c.heads);
  c.context = keys.integer({"max_position_embeddings", "n_positions"}, 1, kMostContext);
  if (!keys.has({"head_dim"}) && c.width % c.heads != 0)
    fail(ErrorKind::File, "{}: {} heads do not divide a width of {}", keys.where(), c.heads,
         c.width);
  c.head_size = keys.integer({"head_dim"}, 1, kMostSize, c.width / c.heads);
  if (c.heads % c.kv_heads != 0)
    fail(ErrorKind::File, "{}: {} heads of keys do not divide {} heads", keys.where(), c.kv_heads,
         c.heads);
  c.hidden = keys.integer({"intermediate_size", "n_inner"}, 1, kMostSize,
                          row.learned_positions ? std::optional(4 * c.width) : std::nullopt);
  c.norm_eps = keys.number({"rms_norm_eps", "layer_norm_epsilon", "layer_norm_eps"}, 0, 1, 1e-6);
}

void read_experts(Keys& keys, const Architecture& row, LanguageConfig& c) {
  c.expert_layer.assign(static_cast<std::size_t>(c.layers), false);
  if (row.experts == Experts::None && !keys.has({"num_local_experts", "num_experts"}))
    return;
  c.experts = keys.integer({"num_local_experts", "num_experts"}, 1, 65536);
  c.experts_used = keys.integer({"num_experts_per_tok"}, 1, c.experts);
  c.expert_hidden = keys.integer({"moe_intermediate_size"}, 1, kMostSize, c.hidden);
  // Mixtral has no key for it and always normalizes.
  c.normalize_experts = keys.flag({"norm_topk_prob"}, row.experts != Experts::Some);
  const std::int64_t step = keys.integer({"decoder_sparse_step"}, 1, kMostLayers, 1);
  for (std::int64_t i = 0; i < c.layers; ++i)
    c.expert_layer[static_cast<std::size_t>(i)] = (i + 1) % step == 0;
  if (const json* without = keys.find({"mlp_only_layers"}); without != nullptr && !without->empty())
    for (const double layer : keys.numbers({"mlp_only_layers"}))
      if (layer >= 0 && layer < static_cast<double>(c.layers))
        c.expert_layer[static_cast<std::size_t>(layer)] = false;
}

bool slides(const Architecture& row, Keys& keys, std::int64_t layer) {
  switch (row.sliding) {
  case Sliding::None:
    return false;
  case Sliding::All:
    return true;
  case Sliding::Even:
    return layer % 2 == 0;
  case Sliding::Pattern: {
    const auto pattern =
        keys.integer({"sliding_window_pattern", "_sliding_window_pattern"}, 1, kMostLayers, 6);
    return (layer + 1) % pattern != 0;
  }
  case Sliding::Upper:
    return keys.flag({"use_sliding_window"}, false) &&
           layer >= keys.integer({"max_window_layers"}, 0, kMostLayers, 0);
  }
  return false;
}

void read_sliding(Keys& keys, const Architecture& row, LanguageConfig& c) {
  const json* types = keys.find({"layer_types"});
  c.window = row.sliding == Sliding::None && types == nullptr
                 ? 0
                 : keys.integer({"sliding_window"}, 1, kMostContext, 0);
  if (types != nullptr && (!types->is_array() || std::ssize(*types) != c.layers))
    fail(ErrorKind::File, "{}: 'layer_types' is no list of {} layers", keys.where(), c.layers);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    bool sliding = slides(row, keys, i);
    if (types != nullptr) {
      const json& type = (*types)[static_cast<std::size_t>(i)];
      if (type != "sliding_attention" && type != "full_attention")
        fail(ErrorKind::Unsupported,
             "{}: 'layer_types': egret does not know {}; it knows \"full_attention\", "
             "\"sliding_attention\"",
             keys.where(), shown(type));
      sliding = type == "sliding_attention";
    }
    c.sliding.push_back(sliding && c.window > 0);
  }
}

void read_rotary(Keys& keys, const Architecture& row, LanguageConfig& c, std::int64_t used) {
  if (row.learned_positions)
    return;
  RotaryParameters parameters = rotary_parameters(keys);
  const auto make = [&](json of) {
    Keys inner(std::move(of), keys.where() + ": rope parameters");
    Rotary rotary = rotary_of(inner, c.head_size, c.context, used);
    inner.find({"original_max_position_embeddings", "finetuned"});
    inner.require_all_read({});
    return rotary;
  };
  c.rotary = make(std::move(parameters.all));
  if (parameters.sliding)
    c.sliding_rotary = make(std::move(*parameters.sliding));
}

} // namespace

/// In the layout that transformers 5 writes (rope_parameters, of all layers or by kind of layer) or
/// in the one before (rope_theta, rope_scaling).
RotaryParameters rotary_parameters(Keys& keys) {
  json all = json::object();
  std::optional<json> sliding;
  for (const char* name : {"rope_theta", "partial_rotary_factor"})
    if (const json* value = keys.find({name}))
      all[name] = *value;
  const json* original = keys.find({"original_max_position_embeddings"});
  const json* local = keys.find({"rope_local_base_freq"});
  const auto merge = [&](json& into, const json& from) {
    if (!from.is_object())
      fail(ErrorKind::File, "{}: rope parameters are {}, not an object", keys.where(), shown(from));
    for (const auto& [key, value] : from.items())
      into[key] = value;
  };
  if (local != nullptr)
    sliding = json{{"rope_theta", *local}};
  if (const json* scaling = keys.find({"rope_scaling"}))
    merge(all, *scaling);
  if (const json* parameters = keys.find({"rope_parameters"})) {
    if (parameters->contains("full_attention")) {
      merge(all, (*parameters)["full_attention"]);
      if (parameters->contains("sliding_attention")) {
        sliding = json::object();
        merge(*sliding, (*parameters)["sliding_attention"]);
      }
    } else {
      merge(all, *parameters);
    }
  }
  if (original != nullptr && !all.contains("original_max_position_embeddings"))
    all["original_max_position_embeddings"] = *original;
  return {std::move(all), std::move(sliding)};
}

LanguageConfig read_config(Keys& keys, const Architecture& row, std::int64_t context) {
  LanguageConfig c;
  c.architecture = row.name;
  if (keys.has({"quantization_config"}))
    fail(ErrorKind::Unsupported,
         "{}: 'quantization_config': egret reads no quantized safetensors; "
         "GGUF files may be quantized",
         keys.where());
  read_sizes(keys, row, c);
  read_experts(keys, row, c);
  read_sliding(keys, row, c);
  read_rotary(keys, row, c, context > 0 ? context : c.context);
  // Early configurations of Gemma say "gelu" in hidden_act and mean the other one.
  if (row.gelu) {
    keys.find({"hidden_act"});
    c.activation =
        activation_named(keys.text({"hidden_activation"}, "gelu_pytorch_tanh"), keys.where());
  } else {
    c.activation = activation_named(keys.text({"hidden_act", "activation_function"},
                                              row.mlp == Mlp::Plain ? "gelu_new" : "silu"),
                                    keys.where());
  }
  const auto scalar = keys.maybe_number({"query_pre_attn_scalar"}, 1e-6, 1e9);
  c.attention_scale = 1 / std::sqrt(scalar.value_or(static_cast<double>(c.head_size)));
  if (!keys.flag({"scale_attn_weights"}, true))
    c.attention_scale = 1;
  if (row.scaled_embedding)
    c.embedding_scale = std::sqrt(static_cast<double>(c.width));
  c.attention_softcap = keys.maybe_number({"attn_logit_softcapping"}, 1e-6, 1e9);
  c.logit_softcap = keys.maybe_number({"final_logit_softcapping"}, 1e-6, 1e9);
  c.original_context = keys.integer({"original_max_position_embeddings"}, 1, kMostContext, 0);
  if (keys.has({"tie_word_embeddings"}))
    c.tied = keys.flag({"tie_word_embeddings"}, false);
  c.attention_bias = keys.flag({"attention_bias"}, false);
  c.mlp_bias = keys.flag({"mlp_bias"}, false);
  c.stop = keys.tokens({"eos_token_id"});
  c.dtype = stored_dtype_named(keys.text({"dtype", "torch_dtype"}, ""));
  for (const char* name : kWithoutEffect)
    keys.find({name});
  return c;
}

} // namespace egret::models::language

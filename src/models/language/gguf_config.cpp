// A GGUF file's metadata in the words of config.json. Keys are those of llama.cpp's gguf-py.
#include "models/language/config.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <array>

namespace egret::models::language {

namespace {

using nlohmann::json;

struct KeyName {
  std::string_view gguf; ///< behind the architecture's name
  const char* config;    ///< nothing: without effect on logits
};
constexpr std::array kKeys = {
    KeyName{"embedding_length", "hidden_size"},
    KeyName{"block_count", "num_hidden_layers"},
    KeyName{"context_length", "max_position_embeddings"},
    KeyName{"feed_forward_length", "intermediate_size"},
    KeyName{"vocab_size", "vocab_size"},
    KeyName{"attention.head_count", "num_attention_heads"},
    KeyName{"attention.head_count_kv", "num_key_value_heads"},
    KeyName{"attention.key_length", "head_dim"},
    KeyName{"attention.value_length", nullptr}, // equal to key_length, checked below
    KeyName{"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    KeyName{"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    KeyName{"attention.sliding_window", "sliding_window"},
    KeyName{"attention.sliding_window_pattern", "sliding_window_pattern"}, // lists: below
    KeyName{"attention.scale", nullptr},                                   // read below
    KeyName{"attention.causal", nullptr},
    KeyName{"attn_logit_softcapping", "attn_logit_softcapping"},
    KeyName{"final_logit_softcapping", "final_logit_softcapping"},
    KeyName{"expert_count", "num_local_experts"},
    KeyName{"expert_used_count", "num_experts_per_tok"},
    KeyName{"expert_feed_forward_length", "moe_intermediate_size"},
    KeyName{"expert_weights_norm", "norm_topk_prob"},
    KeyName{"rope.freq_base", "rope_theta"},
    KeyName{"rope.freq_base_swa", "rope_local_base_freq"},
    KeyName{"rope.dimension_count", nullptr}, // read below
    KeyName{"rope.scaling.type", nullptr},
    KeyName{"rope.scaling.factor", nullptr},
    KeyName{"rope.scaling.attn_factor", nullptr},
    KeyName{"rope.scaling.original_context_length", nullptr},
    KeyName{"rope.scaling.finetuned", nullptr},
    KeyName{"rope.scaling.yarn_beta_fast", nullptr},
    KeyName{"rope.scaling.yarn_beta_slow", nullptr},
};

struct ToJson {
  template <class T>
  json operator()(const T& value) const {
    return json(value);
  }
};

const io::GgufValue* find(const io::GgufMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

std::int64_t count_of_layers(const json& config) {
  const json layers = config.value("num_hidden_layers", json());
  return layers.is_number_integer() ? std::min(layers.get<std::int64_t>(), kMostLayers) : 0;
}

/// Layers that slide as a list, where the file has one, and where the architecture's row leaves no
/// layer to slide but the file has a window (Mistral's files say llama): then all do.
void read_sliding_layers(json& config, const Architecture& row) {
  const json pattern = config.value("sliding_window_pattern", json());
  const bool listed = pattern.is_array();
  if (listed)
    config.erase("sliding_window_pattern");
  else if (row.sliding != Sliding::None || !config.contains("sliding_window"))
    return;
  json types = json::array();
  for (std::int64_t i = 0; i < (listed ? std::ssize(pattern) : count_of_layers(config)); ++i) {
    const bool sliding = !listed || pattern[static_cast<std::size_t>(i)] == true ||
                         pattern[static_cast<std::size_t>(i)] == 1;
    types.push_back(sliding ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = types;
}

} // namespace

json config_of_gguf(const io::GgufMetadata& metadata,
                    const std::vector<io::GgufTensorInfo>& tensors, const Architecture& row,
                    const std::string& where, const std::vector<std::string>& ignored) {
  const auto tensor = [&](std::string_view name) -> const io::GgufTensorInfo* {
    const auto found = std::ranges::find(tensors, name, &io::GgufTensorInfo::name);
    return found == tensors.end() ? nullptr : &*found;
  };
  const std::string prefix = std::string(row.gguf) + ".";
  json config = json::object();
  for (const auto& [key, value] : metadata) {
    if (!key.starts_with(prefix))
      continue;
    const std::string_view behind = std::string_view(key).substr(prefix.size());
    const auto name = std::find_if(kKeys.begin(), kKeys.end(),
                                   [&](const KeyName& n) { return n.gguf == behind; });
    if (name == kKeys.end()) {
      if (std::find(ignored.begin(), ignored.end(), key) != ignored.end())
        continue;
      std::vector<std::string_view> known;
      for (const KeyName& n : kKeys)
        known.push_back(n.gguf);
      fail(ErrorKind::Unsupported, "{}: egret does not know the key '{}'; behind '{}' it knows {}",
           where, printable(key), prefix, fmt::join(known, ", "));
    }
    if (name->config != nullptr)
      config[name->config] = std::visit(ToJson{}, value);
  }
  const auto get = [&](const char* key) -> json {
    const io::GgufValue* value = find(metadata, prefix + key);
    return value == nullptr ? json() : std::visit(ToJson{}, *value);
  };
  if (const json values = get("attention.value_length"); !values.is_null())
    if (values != get("attention.key_length"))
      fail(ErrorKind::Unsupported, "{}: heads of keys of {} and of values of {} dims", where,
           shown(get("attention.key_length")), shown(values));
  // What is no key of the format follows llama.cpp: the scale of the two largest Gemmas, Gemma 3's
  // sliding layers.
  if (const json scale = get("attention.scale"); scale.is_number() && scale.get<double>() > 0) {
    config["query_pre_attn_scalar"] = 1 / (scale.get<double>() * scale.get<double>());
  } else if ((row.name == "gemma2" && config.value("num_hidden_layers", json()) == 46) ||
             (row.name == "gemma3_text" && config.value("num_hidden_layers", json()) == 62)) {
    const json width = config.value("hidden_size", json()),
               heads = config.value("num_attention_heads", json());
    if (width.is_number() && heads.is_number() && heads.get<double>() > 0)
      config["query_pre_attn_scalar"] = width.get<double>() / heads.get<double>();
  }
  if (row.sliding == Sliding::Pattern && !config.contains("rope_local_base_freq"))
    config["rope_local_base_freq"] = 10000.0;
  if (config.contains("num_local_experts")) {
    if (!config.contains("norm_topk_prob"))
      config["norm_topk_prob"] = true;
    // Layers without a router have none.
    json without = json::array();
    for (std::int64_t i = 0; i < count_of_layers(config); ++i)
      if (tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i)) == nullptr)
        without.push_back(i);
    config["mlp_only_layers"] = without;
  }
  read_sliding_layers(config, row);
  if (row.sliding == Sliding::Upper && config.contains("sliding_window"))
    config["use_sliding_window"] = true;
  const json dims = get("rope.dimension_count"), head = config.value("head_dim", json());
  if (dims.is_number()) {
    const json width = config.value("hidden_size", json()),
               heads = config.value("num_attention_heads", json());
    const double whole = head.is_number() ? head.get<double>()
                         : width.is_number() && heads.is_number() && heads.get<double>() > 0
                             ? width.get<double>() / heads.get<double>()
                             : 0;
    if (whole > 0)
      config["partial_rotary_factor"] = dims.get<double>() / whole;
  }
  {
    const json type = get("rope.scaling.type");
    json scaling = {{"rope_type", type.is_string() && type != "none" ? type : json("default")}};
    for (const auto& [key, name] :
         {std::pair{"rope.scaling.factor", "factor"},
          {"rope.scaling.original_context_length", "original_max_position_embeddings"},
          {"rope.scaling.attn_factor", "attention_factor"}, // of yarn: below
          {"rope.scaling.yarn_beta_fast", "beta_fast"},
          {"rope.scaling.yarn_beta_slow", "beta_slow"}})
      if (const json value = get(key); !value.is_null())
        scaling[name] = value;
    // YaRN's own growth comes on top of the key.
    if (type == "yarn" && scaling.contains("attention_factor") && scaling.contains("factor") &&
        scaling["attention_factor"].is_number() && scaling["factor"].is_number())
      scaling["attention_factor"] =
          scaling["attention_factor"].get<double>() * yarn_growth(scaling["factor"].get<double>());
    config["rope_scaling"] = scaling;
  }
  // Divisors of longrope are tensors; LanguageModel applies them.
  if (tensor("rope_factors_long.weight") != nullptr)
    if (const json original = get("rope.scaling.original_context_length"); !original.is_null())
      config["original_max_position_embeddings"] = original;
  if (const io::GgufTensorInfo* table = tensor("token_embd.weight");
      !config.contains("vocab_size") && table != nullptr && !table->shape.empty())
    config["vocab_size"] = table->shape[0];
  json stop = json::array();
  for (const char* key : kStopKeys)
    if (const io::GgufValue* id = find(metadata, key))
      if (json value = std::visit(ToJson{}, *id); std::ranges::find(stop, value) == stop.end())
        stop.push_back(std::move(value));
  if (!stop.empty())
    config["eos_token_id"] = stop;
  config["tie_word_embeddings"] = tensor("output.weight") == nullptr;
  return config;
}

} // namespace egret::models::language

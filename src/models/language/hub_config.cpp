#include "models/language/hub_config.h"

#include "models/keys.h"
#include "models/language/config.h"
#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numbers>

namespace egret::models::language {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// A number that f32 holds, with as few digits as that needs.
double plain(double value) {
  const auto narrow = static_cast<float>(value);
  return static_cast<double>(narrow) == value
             ? std::strtod(fmt::format("{}", narrow).c_str(), nullptr)
             : value;
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-5 * std::abs(b);
}

const char* dtype_name(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return "float16";
  case DType::BF16:
    return "bfloat16";
  default:
    return "float32";
  }
}

bool any_slides(const LanguageConfig& c) {
  return std::ranges::find(c.sliding, true) != c.sliding.end();
}
bool all_slide(const LanguageConfig& c) {
  return std::ranges::find(c.sliding, false) == c.sliding.end();
}

/// What Llama 3's scaling divides frequencies by.
struct Llama3Scaling {
  double factor, low, high, original;
  double divisor(double frequency) const {
    const double turns = original * frequency / (2 * std::numbers::pi);
    if (turns < low)
      return factor;
    if (turns > high)
      return 1;
    const double smooth = (turns - low) / (high - low);
    return 1 / ((1 - smooth) / factor + smooth);
  }
};

/// The scaling that has these divisors, if there is one. A common multiple of its lengths is open,
/// so that the lower bound may be 1 turn. Between the bounds a share of 1/divisor is linear in the
/// frequency, which gives the others; where fewer than two frequencies lie there, the published
/// models' are tried, and what separates those that are divided from those that are not.
std::optional<Llama3Scaling> llama3_scaling(const std::vector<float>& divisors,
                                            const std::vector<double>& frequencies) {
  const double factor = *std::ranges::max_element(divisors);
  std::vector<Llama3Scaling> candidates;
  for (const double original : {8192.0, 4096.0, 16384.0, 32768.0})
    candidates.push_back({factor, 1, 4, original});
  std::vector<std::pair<double, double>> between; // turns of an original length of 1, share
  double divided = 0, kept = INFINITY;            // the nearest outside of the bounds
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double turns = frequencies[i] / (2 * std::numbers::pi);
    if (near(divisors[i], factor))
      divided = std::max(divided, turns);
    else if (near(divisors[i], 1))
      kept = std::min(kept, turns);
    else
      between.emplace_back(turns, (1 / divisors[i] - 1 / factor) / (1 - 1 / factor));
  }
  if (between.size() >= 2) {
    const auto [u, s] = between.front();
    const auto [v, t] = between.back();
    const double slope = (s - t) / (u - v), width = -1 / (s - slope * u);
    candidates.push_back(
        {factor, 1, std::round((1 + width) * 1e4) / 1e4, std::round(slope * width)});
  } else {
    for (const double high : {4.0, 2.0, 8.0, 16.0, 1.5, 32.0}) {
      const double least = between.empty() ? high / kept : 0, most = 1 / divided;
      const double original = between.empty()
                                  ? (std::isfinite(kept) ? (least + most) / 2 : most / 2)
                                  : (between[0].second * (high - 1) + 1) / between[0].first;
      candidates.push_back({factor, 1, high, std::round(original)});
    }
  }
  for (const Llama3Scaling& one : candidates) {
    bool same = one.high > one.low && one.original >= 1 && std::isfinite(one.original);
    for (std::size_t i = 0; same && i < divisors.size(); ++i)
      same = near(one.divisor(frequencies[i]), divisors[i]);
    if (same)
      return one;
  }
  return {};
}

class HubConfig {
public:
  HubConfig(const HubModel& model, const std::string& where)
      : m_(model), c_(model.config), row_(model.row), where_(where) {}

  ordered_json run() {
    put("architectures", json::array({row_.hub_class}));
    put("model_type", row_.name);
    put("torch_dtype", dtype_name(m_.dtype));
    if (row_.learned_positions)
      put_gpt2_sizes();
    else
      put_sizes();
    put_sliding();
    put_rotary();
    put_experts();
    put_attention();
    put("tie_word_embeddings", c_.tied.value_or(true));
    put_tokens();
    return std::move(config_);
  }

private:
  template <class T>
  void put(const char* key, T&& value) {
    config_[key] = std::forward<T>(value);
  }
  /// A choice of the model that transformers has no key for.
  void require(bool said, const char* what) const {
    if (!said)
      fail(ErrorKind::Unsupported, "{}: {}: config.json of the model type '{}' cannot say it",
           where_, what, row_.name);
  }
  double number(const json& from, const char* key, double otherwise) const {
    const auto at = from.find(key);
    return at != from.end() && at->is_number() ? at->get<double>() : otherwise;
  }

  void put_gpt2_sizes() {
    require(c_.kv_heads == c_.heads && c_.head_size * c_.heads == c_.width, "its sizes");
    put("vocab_size", c_.vocabulary);
    put("n_positions", c_.context);
    put("n_embd", c_.width);
    put("n_layer", c_.layers);
    put("n_head", c_.heads);
    put("n_inner", c_.hidden);
    put("activation_function", "gelu_new");
    put("layer_norm_epsilon", plain(c_.norm_eps));
  }

  void put_sizes() {
    put("vocab_size", c_.vocabulary);
    put("hidden_size", c_.width);
    put("intermediate_size", row_.experts == Experts::All ? c_.expert_hidden : c_.hidden);
    put("num_hidden_layers", c_.layers);
    put("num_attention_heads", c_.heads);
    put("num_key_value_heads", c_.kv_heads);
    put("head_dim", c_.head_size);
    put("max_position_embeddings", c_.context);
    if (row_.gelu)
      put("hidden_activation", "gelu_pytorch_tanh");
    else
      put("hidden_act", "silu");
    put("rms_norm_eps", plain(c_.norm_eps));
  }

  void put_sliding() {
    const bool some = any_slides(c_), all = all_slide(c_);
    const char* const which = "which layers slide";
    switch (row_.sliding) {
    case Sliding::None:
      return require(!some, which);
    case Sliding::All:
      require(!some || all, which);
      return put("sliding_window", some ? json(c_.window) : json());
    case Sliding::Upper:
      put("use_sliding_window", some);
      if (!some)
        return;
      put("max_window_layers", 0);
      require(all || row_.experts == Experts::None, which);
      break;
    case Sliding::Even:
    case Sliding::Pattern:
      break;
    }
    if (some)
      put("sliding_window", c_.window);
    json types = json::array();
    for (const bool sliding : c_.sliding)
      types.push_back(sliding ? "sliding_attention" : "full_attention");
    put("layer_types", types);
  }

  void put_rotary() {
    if (row_.learned_positions)
      return;
    const char* const scaling = "the scaling of positions";
    put("rope_theta", plain(number(m_.keys, "rope_theta", 10000)));
    const auto turned = 2 * static_cast<std::int64_t>(c_.rotary.frequencies.size());
    require(turned == c_.head_size || row_.fused_qkv, "heads that turn in part");
    if (turned != c_.head_size)
      put("partial_rotary_factor", static_cast<double>(turned) / static_cast<double>(c_.head_size));
    require(c_.sliding_rotary.has_value() == (row_.sliding == Sliding::Pattern),
            "the scaling of positions in sliding layers");
    if (c_.sliding_rotary)
      put("rope_local_base_freq", plain(number(m_.keys, "rope_local_base_freq", 10000)));
    const json given = m_.keys.value("rope_scaling", json::object());
    const std::string type = given.value("rope_type", "default");
    const double more = number(given, "attention_factor", 1);
    if (!m_.long_divisors.empty()) {
      require(type == "default" && m_.divisors.empty(), scaling);
      put_longrope(more);
    } else if (type == "default") {
      require(near(more, 1), scaling);
      put_divisors();
    } else {
      require(m_.divisors.empty() && (type == "yarn" || near(more, 1)), scaling);
      ordered_json kept;
      for (const auto& [key, value] : given.items())
        if (type == "yarn" || key == "rope_type" || key == "factor")
          kept[key] = value.is_number_float() ? json(plain(value.get<double>())) : value;
      put("rope_scaling", kept);
    }
  }

  /// transformers 4 knows three keys; the factor of cosine and sine follows from the contexts.
  void put_longrope(double factor) {
    const auto original = static_cast<double>(c_.original_context);
    require(c_.original_context > 0 && !m_.short_divisors.empty(), "the scaling of positions");
    const double growth = static_cast<double>(c_.context) / original;
    const double usual = growth <= 1 ? 1 : std::sqrt(1 + std::log(growth) / std::log(original));
    const auto list = [](const std::vector<float>& divisors) {
      json numbers = json::array();
      for (const float divisor : divisors)
        numbers.push_back(plain(static_cast<double>(divisor)));
      return numbers;
    };
    ordered_json scaling = {{"type", "longrope"},
                            {"long_factor", list(m_.long_divisors)},
                            {"short_factor", list(m_.short_divisors)}};
    if (!near(factor, usual))
      scaling["attention_factor"] = plain(factor);
    put("original_max_position_embeddings", c_.original_context);
    put("rope_scaling", scaling);
  }

  void put_divisors() {
    if (m_.divisors.empty() || std::ranges::all_of(m_.divisors, [](float d) { return d == 1; }))
      return;
    const std::vector<double> frequencies(c_.rotary.frequencies.begin(),
                                          c_.rotary.frequencies.end());
    const auto scaling = llama3_scaling(m_.divisors, frequencies);
    require(scaling.has_value(), "the scaling of positions");
    put("rope_scaling", ordered_json{{"rope_type", "llama3"},
                                     {"factor", plain(scaling->factor)},
                                     {"low_freq_factor", scaling->low},
                                     {"high_freq_factor", scaling->high},
                                     {"original_max_position_embeddings",
                                      static_cast<std::int64_t>(scaling->original)}});
  }

  void put_experts() {
    if (c_.experts == 0)
      return;
    if (row_.experts == Experts::All) { // always normalized, in all layers
      require(c_.normalize_experts, "weights of experts");
      require(std::ranges::find(c_.expert_layer, false) == c_.expert_layer.end(),
              "which layers have experts");
      put("num_local_experts", c_.experts);
      put("num_experts_per_tok", c_.experts_used);
      return;
    }
    put("num_experts", c_.experts);
    put("num_experts_per_tok", c_.experts_used);
    put("moe_intermediate_size", c_.expert_hidden);
    put("norm_topk_prob", c_.normalize_experts);
    put("decoder_sparse_step", 1);
    json without = json::array();
    for (std::size_t i = 0; i < c_.expert_layer.size(); ++i)
      if (!c_.expert_layer[i])
        without.push_back(i);
    put("mlp_only_layers", without);
  }

  void put_attention() {
    if (row_.qkv_bias == Bias::Configured)
      put("attention_bias", m_.attention_bias);
    if (row_.mlp_bias == Bias::Configured)
      put("mlp_bias", m_.mlp_bias);
    if (row_.gelu && row_.end_norms) { // with values of their own where a key is absent
      const double scalar = 1 / (c_.attention_scale * c_.attention_scale);
      const double whole = std::round(scalar);
      put("query_pre_attn_scalar",
          near(scalar, whole) ? json(static_cast<std::int64_t>(whole)) : json(plain(scalar)));
      const auto cap = [](const std::optional<double>& value) {
        return value ? json(plain(*value)) : json();
      };
      put("attn_logit_softcapping", cap(c_.attention_softcap));
      put("final_logit_softcapping", cap(c_.logit_softcap));
      return;
    }
    require(near(c_.attention_scale, 1 / std::sqrt(static_cast<double>(c_.head_size))),
            "the scale of attention");
    require(!c_.attention_softcap && !c_.logit_softcap, "soft caps");
  }

  void put_tokens() {
    const auto id = [&](const std::optional<std::int64_t>& token) {
      return token && *token >= 0 && *token < c_.vocabulary ? json(*token) : json();
    };
    put("bos_token_id", id(m_.begin));
    put("eos_token_id", c_.stop.empty()       ? json()
                        : c_.stop.size() == 1 ? json(c_.stop[0])
                                              : json(c_.stop));
    put("pad_token_id", id(m_.padding));
  }

  const HubModel& m_;
  const LanguageConfig& c_;
  const Architecture& row_;
  const std::string& where_;
  ordered_json config_;
};

} // namespace

const Architecture& hub_row(const Architecture& row, const LanguageConfig& config,
                            const std::string& where) {
  for (const Architecture& one : architectures())
    if (one.gguf == row.gguf && (one.experts != Experts::None) == (config.experts > 0) &&
        (one.sliding != Sliding::None || !any_slides(config)))
      return one;
  fail(ErrorKind::Unsupported,
       "{}: egret knows no model type of transformers for the architecture '{}' with {}", where,
       row.gguf, config.experts > 0 ? "experts" : "layers that slide");
}

ordered_json hub_config(const HubModel& model, const std::string& where) {
  return HubConfig(model, where).run();
}

} // namespace egret::models::language

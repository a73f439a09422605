#include "models/speech/whisper.h"

#include "egret/functional.h"
#include "io/json_file.h"
#include "support/fail.h"
#include "support/path_status.h"
#include "support/printable.h"

#include <algorithm>

namespace egret::models::speech {

namespace {

constexpr std::int64_t kMostSize = 1 << 24;

/// Keys that say nothing of the states, or are said again by generation_config.json.
constexpr Keys::Names kTrainingKeys = {"architectures",
                                       "model_type",
                                       "transformers_version",
                                       "use_cache",
                                       "init_std",
                                       "_name_or_path",
                                       "tie_word_embeddings",
                                       "activation_dropout",
                                       "attention_dropout",
                                       "dropout",
                                       "encoder_layerdrop",
                                       "decoder_layerdrop",
                                       "apply_spec_augment",
                                       "mask_feature_length",
                                       "mask_feature_min_masks",
                                       "mask_feature_prob",
                                       "mask_time_length",
                                       "mask_time_min_masks",
                                       "mask_time_prob",
                                       "classifier_proj_size",
                                       "median_filter_width",
                                       "num_hidden_layers",
                                       "forced_decoder_ids",
                                       "suppress_tokens",
                                       "begin_suppress_tokens",
                                       "is_encoder_decoder",
                                       "max_length",
                                       "pad_token_id",
                                       "bos_token_id",
                                       "dtype",
                                       "torch_dtype"};

/// "<|en|>" as "en".
std::string without_brackets(const std::string& token) {
  return token.starts_with("<|") && token.ends_with("|>") ? token.substr(2, token.size() - 4)
                                                          : token;
}

std::map<std::string, int> named_tokens(Keys& keys, const char* key) {
  std::map<std::string, int> tokens;
  Keys object = keys.object({key});
  const nlohmann::json* json = keys.find({key});
  if (json == nullptr)
    return tokens;
  for (const auto& [name, value] : json->items())
    tokens[without_brackets(name)] = static_cast<int>(object.integer({name.c_str()}, 0, kMostSize));
  return tokens;
}

Tensor split_heads(const Tensor& x, std::int64_t heads) { // [1, heads, tokens, width / heads]
  return x.reshape({1, x.shape()[0], heads, x.size(1) / heads}).transpose(1, 2);
}
Tensor joined_heads(const Tensor& x) {
  return x.transpose(1, 2).reshape({x.shape()[2], x.size(1) * x.size(3)});
}

Tensor feed_forward(const SpeechLayer& layer, nn::Activation activation, const Tensor& x) {
  return x + layer.down(nn::activate(activation, layer.up(layer.mlp_norm(x))));
}

} // namespace

SpeechConfig read_speech_config(Keys& keys) {
  SpeechConfig c;
  if (const std::string type = keys.text({"model_type"}); type != "whisper")
    fail(ErrorKind::Unsupported, "{}: egret does not know the speech model '{}'; it knows whisper",
         keys.where(), printable(type));
  c.vocabulary = keys.integer({"vocab_size"}, 1, kMostSize);
  c.width = keys.integer({"d_model"}, 1, kMostSize);
  c.encoder_layers = keys.integer({"encoder_layers"}, 1, 4096);
  c.decoder_layers = keys.integer({"decoder_layers"}, 1, 4096);
  c.encoder_heads = keys.integer({"encoder_attention_heads"}, 1, kMostSize);
  c.decoder_heads = keys.integer({"decoder_attention_heads"}, 1, kMostSize);
  for (const std::int64_t heads : {c.encoder_heads, c.decoder_heads})
    if (c.width % heads != 0)
      fail(ErrorKind::File, "{}: {} heads do not divide a width of {}", keys.where(), heads,
           c.width);
  c.encoder_hidden = keys.integer({"encoder_ffn_dim"}, 1, kMostSize);
  c.decoder_hidden = keys.integer({"decoder_ffn_dim"}, 1, kMostSize);
  c.sound_positions = keys.integer({"max_source_positions"}, 1, 1 << 20, 1500);
  c.text_positions = keys.integer({"max_target_positions"}, 8, 1 << 20, 448);
  c.bins = keys.integer({"num_mel_bins"}, 1, 4096, 80);
  c.activation = activation_named(keys.text({"activation_function"}, "gelu"), keys.where());
  c.start = static_cast<int>(keys.integer({"decoder_start_token_id"}, 0, c.vocabulary - 1));
  c.end = static_cast<int>(keys.integer({"eos_token_id"}, 0, c.vocabulary - 1));
  for (const char* name : kTrainingKeys)
    keys.find({name});
  return c;
}

void read_speech_files(const std::filesystem::path& folder, SpeechConfig& c) {
  if (const auto path = folder / "generation_config.json"; path_exists(path)) {
    Keys keys(io::read_json_object(path), path.string());
    c.languages = named_tokens(keys, "lang_to_id");
    c.tasks = named_tokens(keys, "task_to_id");
    if (const std::int64_t token = keys.integer({"no_timestamps_token_id"}, 0, kMostSize, 0);
        token > 0)
      c.no_times = static_cast<int>(token);
    c.latest_begin = keys.integer({"max_initial_timestamp_index"}, 0, kMostSize, 50);
    c.never = keys.tokens({"suppress_tokens"});
    c.never_first = keys.tokens({"begin_suppress_tokens"});
    std::vector<int> all = c.never;
    all.insert(all.end(), c.never_first.begin(), c.never_first.end());
    if (c.no_times) // and the last time of a window
      all.push_back(*c.no_times + 1 + static_cast<int>(c.sound_positions));
    for (const auto* named : {&c.languages, &c.tasks})
      for (const auto& [name, token] : *named)
        all.push_back(token);
    for (const int token : all)
      if (token >= c.vocabulary)
        fail(ErrorKind::File, "{}: token {} is not in the vocabulary of {}", path.string(), token,
             c.vocabulary);
    if (!c.languages.empty() && !c.tasks.contains("transcribe"))
      fail(ErrorKind::File, "{}: 'task_to_id' has no 'transcribe'", path.string());
  }
  if (const auto path = folder / "preprocessor_config.json"; path_exists(path)) {
    Keys keys(io::read_json_object(path), path.string());
    c.rate = keys.integer({"sampling_rate"}, 1000, 1 << 20, 16000);
    c.hop = keys.integer({"hop_length"}, 1, 1 << 16, 160);
    c.window = keys.integer({"n_fft"}, 2, 1 << 16, 400);
    if (const std::int64_t bins = keys.integer({"feature_size"}, 1, 4096, c.bins); bins != c.bins)
      fail(ErrorKind::File, "{}: 'feature_size' is {}, config.json says {} ('num_mel_bins')",
           path.string(), bins, c.bins);
  }
}

Tensor SpeechEncoder::operator()(const SpeechConfig& c, const Tensor& frames) const {
  Tensor x = frames.to(weight1.dtype()).unsqueeze(0);
  x = gelu(conv1d(x, weight1, bias1, {.padding = 1}));
  x = gelu(conv1d(x, weight2, bias2, {.stride = 2, .padding = 1}));
  x = x.squeeze(0).transpose() + positions.weight;
  for (const SpeechLayer& layer : layers) {
    const Tensor y = layer.attention_norm(x);
    const SpeechAttention& a = layer.attention;
    const std::int64_t heads = c.encoder_heads;
    x = x + a.output(joined_heads(scaled_dot_product_attention(split_heads(a.query(y), heads),
                                                               split_heads(a.key(y), heads),
                                                               split_heads(a.value(y), heads))));
    x = feed_forward(layer, c.activation, x);
  }
  return norm(x);
}

SoundCache SpeechDecoder::sound_cache(const SpeechConfig& c, const Tensor& states) const {
  SoundCache cache;
  for (const SpeechLayer& layer : layers)
    cache.layers.push_back({split_heads(layer.sound->key(states), c.decoder_heads),
                            split_heads(layer.sound->value(states), c.decoder_heads)});
  return cache;
}

TokenCache SpeechDecoder::token_cache(const SpeechConfig& c) const {
  TokenCache cache;
  const Shape shape = {1, c.decoder_heads, c.text_positions, c.width / c.decoder_heads};
  for (std::size_t i = 0; i < layers.size(); ++i)
    cache.layers.push_back(
        {zeros(shape, tokens.weight.dtype()), zeros(shape, tokens.weight.dtype())});
  return cache;
}

Tensor SpeechDecoder::operator()(const SpeechConfig& c, const Tensor& ids, const Tensor& begin,
                                 const SoundCache& sound, TokenCache& cache) const {
  const Tensor place = egret::positions(ids.shape()[0]) + begin;
  const Tensor seen = egret::positions(Expr(c.text_positions)) <= place.unsqueeze(-1);
  Tensor x = tokens(ids) + positions(place);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const SpeechLayer& layer = layers[i];
    const SpeechAttention& own = layer.attention;
    nn::KeyValueCache& held = cache.layers[i];
    Tensor y = layer.attention_norm(x);
    held.keys.assign(index_put(held.keys, place, split_heads(own.key(y), c.decoder_heads), 2));
    held.values.assign(
        index_put(held.values, place, split_heads(own.value(y), c.decoder_heads), 2));
    x = x +
        own.output(joined_heads(scaled_dot_product_attention(
            split_heads(own.query(y), c.decoder_heads), held.keys, held.values, {.mask = seen})));
    y = (*layer.sound_norm)(x);
    x = x + layer.sound->output(joined_heads(
                scaled_dot_product_attention(split_heads(layer.sound->query(y), c.decoder_heads),
                                             sound.layers[i].keys, sound.layers[i].values)));
    x = feed_forward(layer, c.activation, x);
  }
  return linear(norm(x), tokens.weight).to(DType::F32);
}

Whisper read_whisper(ParameterReader& reader, const SpeechConfig& c) {
  constexpr double kEps = 1e-5;
  const auto attention = [&](ParameterReader& r, const std::string& name) {
    return SpeechAttention{r.linear(name + ".q_proj", c.width, c.width),
                           r.linear(name + ".k_proj", c.width, c.width, false),
                           r.linear(name + ".v_proj", c.width, c.width),
                           r.linear(name + ".out_proj", c.width, c.width)};
  };
  const auto layer = [&](ParameterReader& r, const std::string& name, std::int64_t hidden,
                         bool decodes) {
    SpeechLayer l;
    l.attention_norm = r.layer_norm(name + ".self_attn_layer_norm", c.width, kEps);
    l.attention = attention(r, name + ".self_attn");
    if (decodes) {
      l.sound_norm = r.layer_norm(name + ".encoder_attn_layer_norm", c.width, kEps);
      l.sound = attention(r, name + ".encoder_attn");
    }
    l.mlp_norm = r.layer_norm(name + ".final_layer_norm", c.width, kEps);
    l.up = r.linear(name + ".fc1", c.width, hidden);
    l.down = r.linear(name + ".fc2", hidden, c.width);
    return l;
  };
  const auto model = [&](ParameterReader& r) {
    Whisper w;
    SpeechEncoder& e = w.encoder;
    e.weight1 = r.tensor("encoder.conv1.weight", {c.width, c.bins, 3});
    e.bias1 = r.tensor("encoder.conv1.bias", {c.width});
    e.weight2 = r.tensor("encoder.conv2.weight", {c.width, c.width, 3});
    e.bias2 = r.tensor("encoder.conv2.bias", {c.width});
    e.positions = r.embedding("encoder.embed_positions", c.sound_positions, c.width);
    for (std::int64_t i = 0; i < c.encoder_layers; ++i)
      e.layers.push_back(layer(r, fmt::format("encoder.layers.{}", i), c.encoder_hidden, false));
    e.norm = r.layer_norm("encoder.layer_norm", c.width, kEps);
    SpeechDecoder& d = w.decoder;
    d.tokens = r.embedding("decoder.embed_tokens", c.vocabulary, c.width);
    d.positions = r.embedding("decoder.embed_positions", c.text_positions, c.width);
    for (std::int64_t i = 0; i < c.decoder_layers; ++i)
      d.layers.push_back(layer(r, fmt::format("decoder.layers.{}", i), c.decoder_hidden, true));
    d.norm = r.layer_norm("decoder.layer_norm", c.width, kEps);
    return w;
  };
  reader.find_prefix({"model.", ""}, "encoder.conv1.weight");
  return reader.read(model, "a Whisper model", {.begins = {"proj_out."}, .ends = {}});
}

} // namespace egret::models::speech

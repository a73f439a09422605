// Small language models whose logits transformers computed (tests/golden/make_language.py), written
// as the folders and files that people have.
#pragma once

#include "egret/gguf.h"
#include "egret/io.h"
#include "support/golden.h"
#include "support/small_tokenizer.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace egret::test {

inline const nlohmann::json& golden_language(const std::string& name) {
  return golden(("language/" + name + ".json").c_str());
}

/// The weights that both sides make from a seed.
inline io::TensorMap language_tensors(const nlohmann::json& model) {
  io::TensorMap tensors;
  std::uint64_t seed = model["seed"].get<std::uint64_t>();
  for (const auto& [name, of] : model["tensors"].items()) { // in alphabetical order
    Shape shape;
    for (const auto& dim : of["shape"])
      shape.push_back(dim.get<std::int64_t>());
    if (of.contains("dtype")) { // a counter of the training
      tensors.emplace(name, zeros(shape, dtype_named(of["dtype"].get<std::string>())));
      continue;
    }
    std::vector<float> values;
    for (const double x : golden_numbers(count_of(shape), seed++))
      values.push_back(
          static_cast<float>(of["offset"].get<double>() + of["scale"].get<double>() * x));
    tensors.emplace(name, tensor(values, shape));
  }
  return tensors;
}

inline void write_json(const std::filesystem::path& path, const nlohmann::json& json) {
  std::ofstream(path) << json;
}

/// config.json and model.safetensors in a folder that is there.
inline void write_language_folder(const std::filesystem::path& folder, const nlohmann::json& config,
                                  const io::TensorMap& tensors) {
  write_json(folder / "config.json", config);
  io::save_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
}

/// A small model with a tokenizer of as many tokens and a chat template.
inline void write_served_folder(const std::filesystem::path& folder,
                                const nlohmann::json& model = golden_language("llama")) {
  write_language_folder(folder, model["config"], language_tensors(model));
  write_json(folder / "tokenizer.json", small_tokenizer());
  write_json(folder / "tokenizer_config.json",
             {{"eos_token", "</s>"}, {"chat_template", kSmallTemplate}});
}

/// The same tensors in so many files with an index.
inline void write_sharded_folder(const std::filesystem::path& folder, const nlohmann::json& config,
                                 const io::TensorMap& tensors, std::size_t count) {
  write_json(folder / "config.json", config);
  std::vector<io::TensorMap> shards(count);
  nlohmann::json index = {{"metadata", nlohmann::json::object()}};
  std::size_t i = 0;
  for (const auto& [name, value] : tensors) {
    const std::size_t shard = i++ % count;
    shards[shard].emplace(name, value);
    index["weight_map"][name] = "model-" + std::to_string(shard) + ".safetensors";
  }
  for (std::size_t s = 0; s < count; ++s)
    io::save_safetensors(folder / ("model-" + std::to_string(s) + ".safetensors"), shards[s]);
  write_json(folder / "model.safetensors.index.json", index);
}

/// Rows of a matrix of queries or keys in the order of llama.cpp: halves of a head interleaved.
inline Tensor interleaved_rows(const Tensor& a, std::int64_t heads) {
  const std::int64_t rows = a.size(0), columns = a.rank() == 2 ? a.size(1) : 1;
  return a.reshape({heads, 2, rows / heads / 2, columns}).transpose(1, 2).reshape(a.shape());
}

/// The same model as llama.cpp's converter writes it.
inline void write_gguf(const std::filesystem::path& path, const nlohmann::json& model,
                       io::GgmlType type = io::GgmlType::F32, const io::GgufMetadata& more = {}) {
  const nlohmann::json& c = model["config"];
  const std::string arch = model["gguf_architecture"];
  const bool gpt2 = arch == "gpt2", gemma = arch.starts_with("gemma");
  const auto integer = [&](const char* name, const char* other) {
    return c.value(name, c.value(other, nlohmann::json(0))).get<std::int64_t>();
  };
  const std::int64_t heads = integer("num_attention_heads", "n_head");
  const std::int64_t kv = c.value("num_key_value_heads", heads);
  const std::int64_t width = integer("hidden_size", "n_embd");
  io::GgufMetadata meta = more;
  const auto put = [&](const char* name, io::GgufValue value) { meta[arch + "." + name] = value; };
  meta["general.architecture"] = arch;
  meta["tokenizer.ggml.eos_token_id"] = std::int64_t(2);
  put("embedding_length", width);
  put("block_count", integer("num_hidden_layers", "n_layer"));
  put("context_length", integer("max_position_embeddings", "n_positions"));
  put("feed_forward_length", gpt2 ? 4 * width : integer("intermediate_size", ""));
  put("attention.head_count", heads);
  put("attention.head_count_kv", kv);
  put(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
      c.value("rms_norm_eps", c.value("layer_norm_epsilon", 1e-6)));
  if (c.value("head_dim", nlohmann::json()).is_number()) {
    put("attention.key_length", c["head_dim"].get<std::int64_t>());
    put("attention.value_length", c["head_dim"].get<std::int64_t>());
  }
  if (c.value("sliding_window", nlohmann::json()).is_number())
    put("attention.sliding_window", c["sliding_window"].get<std::int64_t>());
  if (c.contains("query_pre_attn_scalar"))
    put("attention.scale", 1 / std::sqrt(c["query_pre_attn_scalar"].get<double>()));
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (c.value(cap, nlohmann::json()).is_number())
      put(cap, c[cap].get<double>());
  if (c.contains("layer_types") && arch == "gemma3")
    put("attention.sliding_window_pattern", std::int64_t(2));
  for (const char* name : {"num_experts", "num_local_experts"})
    if (c.contains(name)) {
      put("expert_count", c[name].get<std::int64_t>());
      put("expert_used_count", c["num_experts_per_tok"].get<std::int64_t>());
      if (c.contains("moe_intermediate_size"))
        put("expert_feed_forward_length", c["moe_intermediate_size"].get<std::int64_t>());
    }
  if (c.contains("rope_parameters")) {
    const auto& all = c["rope_parameters"];
    const auto& rope = all.contains("full_attention") ? all["full_attention"] : all;
    put("rope.freq_base", rope["rope_theta"].get<double>());
    const std::string kind = rope["rope_type"];
    if (kind == "linear" || kind == "yarn") {
      put("rope.scaling.type", kind);
      put("rope.scaling.factor", rope["factor"].get<double>());
      if (kind == "yarn")
        put("rope.scaling.original_context_length",
            rope["original_max_position_embeddings"].get<std::int64_t>());
    }
  }
  std::map<std::string, std::vector<Tensor>> experts; // of each kind, in order
  std::vector<io::GgufTensor> tensors;
  const auto add = [&](const std::string& name, const Tensor& value) {
    tensors.push_back(
        {name, value, value.rank() >= 2 && value.size(-1) % 32 == 0 ? type : io::GgmlType::F32});
  };
  for (auto [name, value] : language_tensors(model)) {
    const auto& gguf = model["gguf_names"][name];
    if (const auto at = name.find(".experts."); at != std::string::npos) {
      const std::string layer = name.substr(13, name.find('.', 13) - 13);
      const std::string kind =
          name.find("gate_proj") != std::string::npos || name.find(".w1.") != std::string::npos
              ? "gate"
          : name.find("up_proj") != std::string::npos || name.find(".w3.") != std::string::npos
              ? "up"
              : "down";
      experts["blk." + layer + ".ffn_" + kind + "_exps.weight"].push_back(value);
      continue;
    }
    if (gpt2 && value.rank() == 2 && name.find(".h.") != std::string::npos)
      value = value.transpose();
    if (gemma && name.ends_with("norm.weight"))
      value = value + 1;
    if (arch == "llama" && name.find("q_proj") != std::string::npos)
      value = interleaved_rows(value, heads);
    if (arch == "llama" && name.find("k_proj") != std::string::npos)
      value = interleaved_rows(value, kv);
    add(gguf.get<std::string>(), value);
  }
  for (const auto& [name, each] : experts)
    add(name, stack(each));
  io::save_gguf(path, meta, tensors);
}

} // namespace egret::test

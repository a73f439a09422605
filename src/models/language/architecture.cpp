#include "models/language/architecture.h"

#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <vector>

namespace egret::models::language {

namespace {

constexpr std::array kCommonNames = {
    RoleName{Role::TokenEmbedding, "embed_tokens", "token_embd"},
    RoleName{Role::PositionEmbedding, "", ""},
    RoleName{Role::FinalNorm, "norm", "output_norm"},
    RoleName{Role::Head, "lm_head", "output"},
    RoleName{Role::InputNorm, "input_layernorm", "attn_norm"},
    RoleName{Role::Query, "self_attn.q_proj", "attn_q"},
    RoleName{Role::Key, "self_attn.k_proj", "attn_k"},
    RoleName{Role::Value, "self_attn.v_proj", "attn_v"},
    RoleName{Role::Qkv, "self_attn.qkv_proj", "attn_qkv"},
    RoleName{Role::Output, "self_attn.o_proj", "attn_output"},
    RoleName{Role::QueryNorm, "self_attn.q_norm", "attn_q_norm"},
    RoleName{Role::KeyNorm, "self_attn.k_norm", "attn_k_norm"},
    RoleName{Role::AttentionEndNorm, "post_attention_layernorm", "post_attention_norm"},
    RoleName{Role::MlpNorm, "post_attention_layernorm", "ffn_norm"},
    RoleName{Role::Gate, "mlp.gate_proj", "ffn_gate"},
    RoleName{Role::Up, "mlp.up_proj", "ffn_up"},
    RoleName{Role::GateUp, "mlp.gate_up_proj", "ffn_up"},
    RoleName{Role::Down, "mlp.down_proj", "ffn_down"},
    RoleName{Role::MlpEndNorm, "post_feedforward_layernorm", "post_ffw_norm"},
    RoleName{Role::Router, "mlp.gate", "ffn_gate_inp"},
    RoleName{Role::ExpertGate, "mlp.experts.{}.gate_proj", "ffn_gate_exps"},
    RoleName{Role::ExpertUp, "mlp.experts.{}.up_proj", "ffn_up_exps"},
    RoleName{Role::ExpertDown, "mlp.experts.{}.down_proj", "ffn_down_exps"},
    RoleName{Role::RopeFactors, "", "rope_freqs"},
    RoleName{Role::RopeFactorsLong, "", "rope_factors_long"},
    RoleName{Role::RopeFactorsShort, "", "rope_factors_short"},
};

constexpr std::array kSandwichNames = {
    RoleName{Role::MlpNorm, "pre_feedforward_layernorm", "ffn_norm"},
};
constexpr std::array kMixtralNames = {
    RoleName{Role::Router, "block_sparse_moe.gate", "ffn_gate_inp"},
    RoleName{Role::ExpertGate, "block_sparse_moe.experts.{}.w1", "ffn_gate_exps"},
    RoleName{Role::ExpertDown, "block_sparse_moe.experts.{}.w2", "ffn_down_exps"},
    RoleName{Role::ExpertUp, "block_sparse_moe.experts.{}.w3", "ffn_up_exps"},
};
constexpr std::array kGpt2Names = {
    RoleName{Role::TokenEmbedding, "wte", "token_embd"},
    RoleName{Role::PositionEmbedding, "wpe", "position_embd"},
    RoleName{Role::FinalNorm, "ln_f", "output_norm"},
    RoleName{Role::InputNorm, "ln_1", "attn_norm"},
    RoleName{Role::Qkv, "attn.c_attn", "attn_qkv"},
    RoleName{Role::Output, "attn.c_proj", "attn_output"},
    RoleName{Role::MlpNorm, "ln_2", "ffn_norm"},
    RoleName{Role::Up, "mlp.c_fc", "ffn_up"},
    RoleName{Role::Down, "mlp.c_proj", "ffn_down"},
};

// The table of differences; what a row does not say is as in Llama.
constexpr std::array kArchitectures = {
    Architecture{.name = "llama",
                 .gguf = "llama",
                 .hub_class = "LlamaForCausalLM",
                 .gguf_interleaved = true,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .mlp_bias = Bias::Configured},
    Architecture{.name = "mistral",
                 .gguf = "llama",
                 .hub_class = "MistralForCausalLM",
                 .gguf_interleaved = true,
                 .sliding = Sliding::All},
    Architecture{.name = "mixtral",
                 .gguf = "llama",
                 .hub_class = "MixtralForCausalLM",
                 .gguf_interleaved = true,
                 .experts = Experts::All,
                 .sliding = Sliding::All,
                 .names = kMixtralNames},
    Architecture{.name = "qwen2",
                 .gguf = "qwen2",
                 .hub_class = "Qwen2ForCausalLM",
                 .qkv_bias = Bias::Always,
                 .sliding = Sliding::Upper},
    Architecture{.name = "qwen3",
                 .gguf = "qwen3",
                 .hub_class = "Qwen3ForCausalLM",
                 .query_key_norm = QueryKeyNorm::Head,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .sliding = Sliding::Upper},
    Architecture{.name = "qwen3_moe",
                 .gguf = "qwen3moe",
                 .hub_class = "Qwen3MoeForCausalLM",
                 .query_key_norm = QueryKeyNorm::Head,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .experts = Experts::Some,
                 .sliding = Sliding::Upper},
    Architecture{.name = "gemma",
                 .gguf = "gemma",
                 .hub_class = "GemmaForCausalLM",
                 .norm_plus_one = true,
                 .scaled_embedding = true,
                 .gelu = true,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured},
    Architecture{.name = "gemma2",
                 .gguf = "gemma2",
                 .hub_class = "Gemma2ForCausalLM",
                 .norm_plus_one = true,
                 .end_norms = true,
                 .scaled_embedding = true,
                 .gelu = true,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .sliding = Sliding::Even,
                 .names = kSandwichNames},
    Architecture{.name = "gemma3_text",
                 .gguf = "gemma3",
                 .hub_class = "Gemma3ForCausalLM",
                 .norm_plus_one = true,
                 .end_norms = true,
                 .query_key_norm = QueryKeyNorm::Head,
                 .scaled_embedding = true,
                 .gelu = true,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .sliding = Sliding::Pattern,
                 .names = kSandwichNames},
    Architecture{.name = "phi3",
                 .gguf = "phi3",
                 .hub_class = "Phi3ForCausalLM",
                 .fused_qkv = true,
                 .mlp = Mlp::GatedFused,
                 .sliding = Sliding::All},
    Architecture{.name = "olmo2",
                 .gguf = "olmo2",
                 .hub_class = "Olmo2ForCausalLM",
                 .pre_norms = false,
                 .end_norms = true,
                 .query_key_norm = QueryKeyNorm::Whole,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured},
    Architecture{.name = "gpt2",
                 .gguf = "gpt2",
                 .hub_class = "GPT2LMHeadModel",
                 .norm = Norm::Layer,
                 .fused_qkv = true,
                 .mlp = Mlp::Plain,
                 .learned_positions = true,
                 .transposed = true,
                 .qkv_bias = Bias::Always,
                 .output_bias = Bias::Always,
                 .mlp_bias = Bias::Always,
                 .prefix = "transformer.",
                 .layer = "h.",
                 .names = kGpt2Names},
};

} // namespace

std::span<const Architecture> architectures() {
  return kArchitectures;
}

const Architecture& architecture_of(std::string_view name, bool gguf, const std::string& path) {
  std::vector<std::string_view> known;
  for (const Architecture& row : kArchitectures) {
    const std::string_view its = gguf ? row.gguf : row.name;
    if (its == name)
      return row;
    if (std::ranges::find(known, its) == known.end())
      known.push_back(its);
  }
  fail(ErrorKind::Unsupported, "{}: egret does not know the architecture '{}'; it knows {}", path,
       printable(name), fmt::join(known, ", "));
}

namespace {

/// Whether models of the row may have such a parameter: several roles have one name in a kind of
/// file.
bool has(const Architecture& row, Role role) {
  switch (role) {
  case Role::AttentionEndNorm:
  case Role::MlpEndNorm:
    return row.end_norms;
  case Role::InputNorm:
  case Role::MlpNorm:
    return row.pre_norms;
  case Role::Qkv:
    return row.fused_qkv;
  case Role::GateUp:
    return row.mlp == Mlp::GatedFused;
  case Role::Up:
    return row.mlp != Mlp::GatedFused;
  default:
    return true;
  }
}

} // namespace

bool is_norm(Role role) {
  return role == Role::InputNorm || role == Role::FinalNorm || role == Role::QueryNorm ||
         role == Role::KeyNorm || role == Role::AttentionEndNorm || role == Role::MlpNorm ||
         role == Role::MlpEndNorm;
}

std::vector<TensorName> tensor_names(const Architecture& architecture, std::int64_t layers,
                                     const std::string& prefix) {
  std::vector<TensorName> names;
  for (std::int64_t layer = -1; layer < layers; ++layer)
    for (std::size_t i = 0; i <= static_cast<std::size_t>(Role::RopeFactorsShort); ++i) {
      const auto role = static_cast<Role>(i);
      const RoleName& name = name_of(architecture, role);
      if (name.safetensors.empty() || name.gguf.empty() || !has(architecture, role))
        continue;
      const std::string hub =
          layer < 0 ? (role == Role::Head ? "" : prefix) + std::string(name.safetensors)
                    : fmt::format("{}{}{}.{}", prefix, architecture.layer, layer, name.safetensors);
      const std::string gguf =
          layer < 0 ? std::string(name.gguf) : fmt::format("blk.{}.{}", layer, name.gguf);
      for (const bool bias : {false, true}) {
        const char* kind = bias ? ".bias" : ".weight";
        names.push_back({role, layer, bias, hub + kind, gguf + kind});
      }
    }
  return names;
}

const RoleName& name_of(const Architecture& architecture, Role role) {
  const auto is = [role](const RoleName& name) { return name.role == role; };
  const auto own = std::find_if(architecture.names.begin(), architecture.names.end(), is);
  if (own != architecture.names.end())
    return *own;
  return *std::find_if(kCommonNames.begin(), kCommonNames.end(), is);
}

} // namespace egret::models::language

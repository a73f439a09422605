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
                 .gguf_interleaved = true,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .mlp_bias = Bias::Configured},
    Architecture{
        .name = "mistral", .gguf = "llama", .gguf_interleaved = true, .sliding = Sliding::All},
    Architecture{.name = "mixtral",
                 .gguf = "llama",
                 .gguf_interleaved = true,
                 .experts = Experts::All,
                 .sliding = Sliding::All,
                 .names = kMixtralNames},
    Architecture{
        .name = "qwen2", .gguf = "qwen2", .qkv_bias = Bias::Always, .sliding = Sliding::Upper},
    Architecture{.name = "qwen3",
                 .gguf = "qwen3",
                 .query_key_norm = QueryKeyNorm::Head,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .sliding = Sliding::Upper},
    Architecture{.name = "qwen3_moe",
                 .gguf = "qwen3moe",
                 .query_key_norm = QueryKeyNorm::Head,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured,
                 .experts = Experts::Some,
                 .sliding = Sliding::Upper},
    Architecture{.name = "gemma",
                 .gguf = "gemma",
                 .norm_plus_one = true,
                 .scaled_embedding = true,
                 .gelu = true,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured},
    Architecture{.name = "gemma2",
                 .gguf = "gemma2",
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
                 .fused_qkv = true,
                 .mlp = Mlp::GatedFused,
                 .sliding = Sliding::All},
    Architecture{.name = "olmo2",
                 .gguf = "olmo2",
                 .pre_norms = false,
                 .end_norms = true,
                 .query_key_norm = QueryKeyNorm::Whole,
                 .qkv_bias = Bias::Configured,
                 .output_bias = Bias::Configured},
    Architecture{.name = "gpt2",
                 .gguf = "gpt2",
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

const RoleName& name_of(const Architecture& architecture, Role role) {
  const auto is = [role](const RoleName& name) { return name.role == role; };
  const auto own = std::find_if(architecture.names.begin(), architecture.names.end(), is);
  if (own != architecture.names.end())
    return *own;
  return *std::find_if(kCommonNames.begin(), kCommonNames.end(), is);
}

} // namespace egret::models::language

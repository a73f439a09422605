// What tells decoder-only architectures apart: one row each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::models::language {

/// A parameter's part in the model.
enum class Role : std::uint8_t {
  TokenEmbedding,
  PositionEmbedding,
  FinalNorm,
  Head,
  InputNorm, ///< before attention
  Query,
  Key,
  Value,
  Qkv, ///< the three as one matrix
  Output,
  QueryNorm,
  KeyNorm,
  AttentionEndNorm, ///< behind attention, before the sum
  MlpNorm,          ///< before the feed-forward part
  Gate,
  Up,
  GateUp, ///< both as one matrix
  Down,
  MlpEndNorm, ///< behind the feed-forward part, before the sum
  Router,
  ExpertGate,
  ExpertUp,
  ExpertDown,
  RopeFactors,      ///< divisors of the frequencies (GGUF)
  RopeFactorsLong,  ///< those for contexts beyond the original one
  RopeFactorsShort, ///< those for others
};

/// A parameter's name without ".weight" or ".bias": below the model for a role of the whole model,
/// below a layer for others. `{}` stands for an expert's number. An empty name: not in that kind of
/// file.
struct RoleName {
  Role role;
  std::string_view safetensors, gguf;
};

enum class Norm : std::uint8_t { Rms, Layer };
enum class QueryKeyNorm : std::uint8_t { None, Head, Whole }; ///< over a head's dims, or all heads'
enum class Mlp : std::uint8_t { Gated, GatedFused, Plain };
/// Whether matrices have a bias: never, always, or as the configuration's key says.
enum class Bias : std::uint8_t { Never, Always, Configured };
enum class Experts : std::uint8_t { None, All, Some }; ///< in no layer, in all, as configured
/// Which layers slide when the configuration has no list of them.
enum class Sliding : std::uint8_t {
  None,
  All,
  Even,    ///< 0, 2, 4 ...
  Pattern, ///< all but each so-manieth (sliding_window_pattern, 6 without it)
  Upper    ///< from max_window_layers on, if use_sliding_window
};

struct Architecture {
  std::string_view name;      ///< model_type of config.json
  std::string_view gguf;      ///< general.architecture; files of several rows with the same one are
                              ///< read by the first of them
  std::string_view hub_class; ///< the class in transformers, as config.json names it
  Norm norm = Norm::Rms;
  bool norm_plus_one = false; ///< safetensors hold a norm's weight less 1
  bool pre_norms = true, end_norms = false;
  QueryKeyNorm query_key_norm = QueryKeyNorm::None;
  bool fused_qkv = false;
  Mlp mlp = Mlp::Gated;
  bool learned_positions = false;
  bool transposed = false;       ///< safetensors hold matrices of layers as [in, out]
  bool gguf_interleaved = false; ///< GGUF files have rotary pairs as neighbours
  bool scaled_embedding = false; ///< by √width
  bool gelu = false;             ///< tanh-GELU unless the configuration has hidden_activation
  Bias qkv_bias = Bias::Never, output_bias = Bias::Never, mlp_bias = Bias::Never;
  Experts experts = Experts::None;
  Sliding sliding = Sliding::None;
  std::string_view prefix = "model."; ///< of names in safetensors, but for the head's
  std::string_view layer = "layers.";
  std::span<const RoleName> names = {}; ///< that differ from the common ones
};

std::span<const Architecture> architectures();
/// The row of a model_type, or of a general.architecture. Error(Unsupported) that names `path`, the
/// architecture and those that are known.
const Architecture& architecture_of(std::string_view name, bool gguf, const std::string& path);
/// The names of a role.
const RoleName& name_of(const Architecture& architecture, Role role);

/// Whether it is the weight of a norm (that Architecture::norm_plus_one is about).
bool is_norm(Role role);

/// A tensor that models of an architecture may have, by its names in both kinds of files.
struct TensorName {
  Role role;
  std::int64_t layer; ///< -1: of the whole model
  bool bias;
  std::string safetensors, gguf; ///< in safetensors, `{}` stands for an expert's number
};
/// All of them; `prefix`: of names in safetensors, but for the head's.
std::vector<TensorName> tensor_names(const Architecture& architecture, std::int64_t layers,
                                     const std::string& prefix);

} // namespace egret::models::language

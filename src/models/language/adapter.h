// Low-rank adapters (LoRA) of a model's matrices, in memory and as PEFT stores them.
#pragma once

#include "egret/nn.h"
#include "models/language/decoder.h"
#include "models/language/weights.h"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace egret::models::language {

struct Adapter {
  /// By the module of the matrix (LayerMatrix); of experts, those of all in one.
  std::map<std::string, nn::LowRank> layers;
  EGRET_FIELDS(layers)
};

/// The matrices whose module's last part is one of `targets`, each as q_proj or, for short, q; no
/// targets: those of queries and values, as Hu et al. chose. Error(Value) for a target that no
/// matrix has, naming those that there are; `path` starts the message.
std::vector<LayerMatrix> targeted(const std::vector<LayerMatrix>& layers,
                                  const std::vector<std::string>& targets, const std::string& path);

/// Updates of these matrices that begin as nothing. Errors as nn::LowRank.
Adapter new_adapter(const std::vector<LayerMatrix>& layers, std::int64_t rank, double alpha,
                    Generator& generator);

/// The same weights with the adapter's updates beside their matrices: an expression of its tensors,
/// so that gradients lead to them.
Weights adapted(Weights weights, const Adapter& adapter);

struct AdapterInfo {
  std::string base; ///< base_model_name_or_path
  std::int64_t rank = 8;
  double alpha = 16;
  bool transposed = false; ///< fan_in_fan_out: the model stores its matrices as [in, out]
};
/// adapter_model.safetensors, then adapter_config.json, in a folder that is there. Error(File).
void save_adapter(const std::filesystem::path& folder, const Adapter& adapter,
                  const AdapterInfo& info);

/// What PEFT or save_adapter() wrote, for a model with these matrices. Error(File) naming file and
/// tensor for damage and for a tensor that does not fit the model, Error(Unsupported) for kinds of
/// adapters other than plain LoRA.
Adapter load_adapter(const std::filesystem::path& folder, const std::vector<LayerMatrix>& layers);

} // namespace egret::models::language

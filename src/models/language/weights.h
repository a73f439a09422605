// The weights of a model from the tensors of its files.
#pragma once

#include "models/language/architecture.h"
#include "models/language/decoder.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace egret::models::language {

/// Tensors by name, wherever they are.
class TensorSource {
public:
  virtual ~TensorSource() = default;
  virtual bool gguf() const = 0;
  virtual std::string path() const = 0;                           ///< for messages about all of it
  virtual std::string path_of(const std::string& name) const = 0; ///< the file of a tensor
  virtual std::vector<std::string> names() const = 0;
  virtual bool contains(const std::string& name) const = 0;
  virtual std::vector<std::int64_t> shape(const std::string& name) const = 0;
  virtual Tensor read(const std::string& name) const = 0;
  /// Whether it is stored as packed integers, as read_packed() gives them; read() gives f32 then.
  virtual bool packed(const std::string& name) const = 0;
  virtual Quantized read_packed(const std::string& name) const = 0;
};

/// Checks that the source has every tensor that the configuration asks for, in its shape, and no
/// others (Error(File) naming the file and the tensor), then reads them in `dtype` (empty: as they
/// are, all in that of the embedding; it is set then). Packed matrices stay packed if `packed`.
/// Divisors of frequencies among them change `config`.
Weights read_weights(const TensorSource& source, const Architecture& architecture,
                     LanguageConfig& config, std::int64_t context, std::optional<DType>& dtype,
                     bool packed);

/// The weights as expressions of the source's tensors, in `dtype`, none computed: gradients lead
/// through them. Without frequencies of rotary positions.
Weights expressed_weights(const TensorSource& source, const Architecture& architecture,
                          const LanguageConfig& config, DType dtype);

/// A matrix of a layer's products as the checkpoint has it; adapters change those.
struct LayerMatrix {
  std::string module; ///< as model.layers.0.self_attn.q_proj, with the prefix of the model's class
  std::string tensor; ///< its weight in the source
  std::int64_t out = 0, in = 0;
  bool transposed = false; ///< the source has [in, out]
  Role role = Role::Query;
};

/// What a source has for a model.
struct Parameters {
  std::vector<std::string> names; ///< of all tensors that the model uses
  /// Those that are matrices of products or the table of tokens, and whether the source has them
  /// transposed.
  std::map<std::string, bool> matrices;
  std::vector<LayerMatrix> layers; ///< without those of experts
};
/// Errors as read_weights().
Parameters parameters_of(const TensorSource& source, const Architecture& architecture,
                         const LanguageConfig& config);

} // namespace egret::models::language

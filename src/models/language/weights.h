// The weights of a model from the tensors of its files.
#pragma once

#include "models/language/architecture.h"
#include "models/language/decoder.h"

#include <map>
#include <string>
#include <vector>

namespace egret::models::language {

/// How a packed matrix is packed; the default for others.
struct PackedForm {
  DType dtype = DType::F32; ///< of the values
  int bits = 0;
  std::int64_t group = 0;
  bool zero_points = false;
  friend bool operator==(const PackedForm&, const PackedForm&) = default;
};

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
  virtual DType dtype(const std::string& name) const = 0; ///< of read(), but packed ones
  virtual Tensor read(const std::string& name) const = 0;
  /// Whether it is stored as packed integers, as read_packed() gives them; read() gives f32 then.
  virtual bool packed(const std::string& name) const = 0;
  virtual Matrix read_packed(const std::string& name) const = 0;
  virtual std::int64_t packed_bytes(const std::string& name) const = 0; ///< with the scales
  virtual PackedForm form(const std::string& /*name*/) const { return {}; }
  /// Some of the same shape along a new first axis, in `dtype`.
  virtual Tensor read_stacked(const std::vector<std::string>& names, DType dtype) const;
  /// The same of those that are packed, all in one form, which stay packed.
  virtual Matrix read_packed_stacked(const std::vector<std::string>& names) const;
};

/// Checks that the source has every tensor that the configuration asks for, in its shape, and no
/// others (Error(File) naming the file and the tensor), then reads them in `dtype`. Packed matrices
/// stay packed if `packed`. Divisors of frequencies among them change `config`.
Weights read_weights(const TensorSource& source, const Architecture& architecture,
                     LanguageConfig& config, std::int64_t context, DType dtype, bool packed);

/// Divides the frequencies by the divisors that a GGUF file has as tensors, those for a cache of
/// `context` positions (0: the model's own). Error(File) unless they are positive.
void divide_frequencies(const TensorSource& source, const Architecture& architecture,
                        LanguageConfig& config, std::int64_t context);

/// That of the table of tokens in the source; of a packed one what the configuration says, or F32.
/// F32 for f64, and for a source without the table.
DType stored_dtype(const TensorSource& source, const Architecture& architecture,
                   const LanguageConfig& config);

/// The weights as expressions of the source's tensors, in `dtype`, none computed: gradients lead
/// through them. Without frequencies of rotary positions.
Weights expressed_weights(const TensorSource& source, const Architecture& architecture,
                          const LanguageConfig& config, DType dtype);

/// A matrix of a layer's products as the checkpoint has it; adapters change those.
struct LayerMatrix {
  std::string module; ///< as model.layers.0.self_attn.q_proj, with the prefix of the model's class
  std::string tensor; ///< its weight in the source
  // Of experts, "{}" in both stands for the number of each.
  std::int64_t out = 0, in = 0;
  bool transposed = false; ///< the source has [in, out]
  Role role = Role::Query;
  std::int64_t experts = 0; ///< that have such a matrix each; 0: it is no expert's
  /// The module of which transformers, from its version 5 on, makes all experts' gates and
  /// projections up one parameter, gate_up_proj, and those down another, down_proj.
  std::string together = {};
};
/// A name with the number of an expert for "{}".
std::string of_expert(const std::string& name, std::int64_t number);

/// What a source has for a model.
struct Parameters {
  std::vector<std::string> names; ///< of all tensors that the model uses
  /// Those that are matrices of products or the table of tokens, and whether the source has them
  /// transposed.
  std::map<std::string, bool> matrices;
  std::vector<LayerMatrix> layers;
  /// Of the weights in memory, in `dtype` and packed where the source has them packed, unless
  /// `dequantized`.
  std::int64_t bytes(const TensorSource& source, DType dtype, bool dequantized) const;
};
/// Errors as read_weights().
Parameters parameters_of(const TensorSource& source, const Architecture& architecture,
                         const LanguageConfig& config);

} // namespace egret::models::language

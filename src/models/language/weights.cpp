#include "models/language/weights.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <set>

namespace egret::models::language {

namespace {

using Dims = std::vector<std::int64_t>;

/// Walks the parameters of a model twice: first to check names and shapes, with zeros in place of
/// values, then to read them.
class WeightReader {
public:
  WeightReader(const TensorSource& source, const Architecture& row, const LanguageConfig& config,
               DType dtype, bool packed, bool evaluates = true)
      : source_(source), row_(row), c_(config), dtype_(dtype), packed_(packed),
        evaluates_(evaluates) {
    // Published files of some architectures lack the prefix of the class that they were saved from.
    const std::string first = std::string(row.prefix) + base(Role::TokenEmbedding) + ".weight";
    if (!source.gguf() && source.contains(first))
      prefix_ = row.prefix;
  }

  Weights check() {
    reading_ = false;
    Weights weights = all();
    for (const std::string& name : source_.names())
      if (!used_.contains(name) && !known_buffer(name))
        fail(ErrorKind::File,
             "{}: tensor '{}' is none that a model of the architecture '{}' with "
             "this configuration has",
             source_.path_of(name), printable(name), row_.name);
    return weights;
  }
  Weights read() {
    reading_ = true;
    return all();
  }

  DType stored_dtype() const {
    const std::string name = named(Role::TokenEmbedding, -1) + ".weight";
    if (!source_.contains(name))
      return DType::F32;
    if (source_.packed(name))
      return c_.dtype.value_or(DType::F32);
    const DType own = source_.dtype(name);
    return is_float(own) && own != DType::F64 ? own : DType::F32;
  }

  /// Of the walk that check() did.
  Parameters parameters() const {
    return {{used_.begin(), used_.end()}, matrices_, layer_matrices_};
  }

  /// Divisors of frequencies, which only GGUF files have as tensors.
  std::optional<std::vector<float>> divisors(Role role, std::size_t count) {
    const std::string name = named(role, -1) + ".weight";
    if (base(role).empty() || !source_.contains(name))
      return {};
    require(name, {static_cast<std::int64_t>(count)});
    return source_.read(name).to_vector<float>();
  }

private:
  std::string base(Role role) const {
    const RoleName& name = name_of(row_, role);
    return std::string(source_.gguf() ? name.gguf : name.safetensors);
  }
  /// Of the model (layer -1) or of a layer, without ".weight".
  std::string named(Role role, std::int64_t layer) const {
    if (layer < 0)
      return (role == Role::Head ? "" : prefix_) + base(role);
    return source_.gguf() ? fmt::format("blk.{}.{}", layer, base(role))
                          : fmt::format("{}{}{}.{}", prefix_, row_.layer, layer, base(role));
  }

  /// Tensors of published files that are no parameters: tables that the model computes.
  bool known_buffer(const std::string& name) const {
    if (name.ends_with("rotary_emb.inv_freq"))
      return true;
    for (const Role role : {Role::RopeFactors, Role::RopeFactorsLong, Role::RopeFactorsShort})
      if (!base(role).empty() && name == named(role, -1) + ".weight")
        return true;
    // A tied head that was saved all the same.
    if (tied_ && name == named(Role::Head, -1) + ".weight")
      return true;
    return row_.learned_positions &&
           (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
  }

  void require(const std::string& name, const Dims& shape) {
    used_.insert(name);
    if (!source_.contains(name))
      fail(ErrorKind::File, "{}: tensor '{}' is missing ([{}], as the configuration says)",
           source_.path(), name, fmt::join(shape, ","));
    if (const Dims have = source_.shape(name); have != shape)
      fail(ErrorKind::File, "{}: tensor '{}' is [{}], the configuration says [{}]",
           source_.path_of(name), name, fmt::join(have, ","), fmt::join(shape, ","));
    if (!source_.packed(name) && !is_float(source_.dtype(name)))
      fail(ErrorKind::File, "{}: tensor '{}' is {}; a float is needed", source_.path_of(name), name,
           egret::name_of(source_.dtype(name)));
  }

  /// A tensor in the model's dtype. Until reading it is not touched.
  Tensor tensor(const std::string& name, const Dims& shape) {
    if (!reading_) {
      require(name, shape);
      return zeros(Shape(shape.begin(), shape.end()));
    }
    Tensor value = source_.read(name).to(dtype_);
    if (evaluates_)
      value.eval();
    return value;
  }

  /// A tensor [..., out, in] that products use.
  Matrix matrix(const std::string& name, const Dims& shape) {
    if (!reading_)
      matrices_[name] = false;
    else if (packed_ && source_.packed(name))
      return stored(source_.read_packed(name));
    return tensor(name, shape);
  }

  /// A matrix [out, in], or its transpose where the architecture stores that: but for the head.
  Matrix matrix_of(const std::string& name, std::int64_t layer, std::int64_t out, std::int64_t in) {
    const std::string weight = name + ".weight";
    if (!row_.transposed || layer < 0 || source_.gguf() ||
        (source_.contains(weight) && source_.packed(weight)))
      return matrix(weight, {out, in});
    if (!reading_)
      matrices_[weight] = true;
    return stored(tensor(weight, {in, out}).transpose());
  }

  bool has_bias(Bias bias, bool configured, const std::string& name) const {
    // GGUF has no key for biases: those that are there count.
    if (source_.gguf() && bias == Bias::Configured)
      return source_.contains(name + ".bias");
    return bias == Bias::Always || (bias == Bias::Configured && configured);
  }

  Projection linear_of(Role role, std::int64_t layer, std::int64_t out, std::int64_t in, Bias bias,
                       bool configured) {
    const std::string name = named(role, layer);
    Projection linear;
    linear.weight = matrix_of(name, layer, out, in);
    if (layer >= 0) {
      linear.module = fmt::format("{}{}{}.{}", row_.prefix, row_.layer, layer, base(role));
      if (!reading_)
        layer_matrices_.push_back(
            {linear.module, name + ".weight", out, in, matrices_.at(name + ".weight"), role});
    }
    if (has_bias(bias, configured, name))
      linear.bias = tensor(name + ".bias", {out});
    return linear;
  }

  /// Rows of a fused matrix and its bias.
  Projection rows(const Projection& of, std::int64_t begin, std::int64_t count) const {
    Projection linear;
    linear.module = of.module;
    linear.row = of.row + begin;
    linear.weight = stored(narrowed(of.weight, begin, count));
    if (of.bias)
      linear.bias = std::get<Tensor>(stored(of.bias->narrow(0, begin, count)));
    return linear;
  }

  /// Computed now, so that what it was made from goes.
  Matrix stored(Matrix value) const {
    if (reading_ && evaluates_)
      evaluate(value);
    return value;
  }

  NormWeights norm_of(Role role, std::int64_t layer, std::int64_t size) {
    const std::string name = named(role, layer);
    NormWeights norm{tensor(name + ".weight", {size}), {}};
    if (row_.norm == Norm::Layer)
      norm.bias = tensor(name + ".bias", {size});
    return norm;
  }

  void read_attention(LayerWeights& layer, std::int64_t i) {
    const std::int64_t q = c_.heads * c_.head_size, kv = c_.kv_heads * c_.head_size;
    const bool bias = c_.attention_bias;
    if (row_.fused_qkv) {
      const Projection all = linear_of(Role::Qkv, i, q + 2 * kv, c_.width, row_.qkv_bias, bias);
      layer.query = rows(all, 0, q);
      layer.key = rows(all, q, kv);
      layer.value = rows(all, q + kv, kv);
    } else {
      layer.query = linear_of(Role::Query, i, q, c_.width, row_.qkv_bias, bias);
      layer.key = linear_of(Role::Key, i, kv, c_.width, row_.qkv_bias, bias);
      layer.value = linear_of(Role::Value, i, kv, c_.width, row_.qkv_bias, bias);
    }
    layer.output = linear_of(Role::Output, i, c_.width, q, row_.output_bias, bias);
    if (row_.query_key_norm != QueryKeyNorm::None) {
      const bool whole = row_.query_key_norm == QueryKeyNorm::Whole;
      layer.query_norm = norm_of(Role::QueryNorm, i, whole ? q : c_.head_size);
      layer.key_norm = norm_of(Role::KeyNorm, i, whole ? kv : c_.head_size);
    }
  }

  void read_mlp(LayerWeights& layer, std::int64_t i) {
    const bool bias = c_.mlp_bias;
    if (row_.mlp == Mlp::GatedFused) {
      const Projection both =
          linear_of(Role::GateUp, i, 2 * c_.hidden, c_.width, row_.mlp_bias, bias);
      layer.gate = rows(both, 0, c_.hidden);
      layer.up = rows(both, c_.hidden, c_.hidden);
    } else {
      if (row_.mlp == Mlp::Gated)
        layer.gate = linear_of(Role::Gate, i, c_.hidden, c_.width, row_.mlp_bias, bias);
      layer.up = linear_of(Role::Up, i, c_.hidden, c_.width, row_.mlp_bias, bias);
    }
    layer.down = linear_of(Role::Down, i, c_.width, c_.hidden, row_.mlp_bias, bias);
  }

  /// Matrices of all experts: one tensor in GGUF, one an expert in safetensors.
  ExpertMatrix expert_matrices(Role role, std::int64_t layer, std::int64_t out, std::int64_t in) {
    const std::string name = named(role, layer) + ".weight",
                      module = fmt::format("{}{}{}.{}", row_.prefix, row_.layer, layer, base(role));
    if (!reading_)
      layer_matrices_.push_back(
          {module, name, out, in, false, role, c_.experts,
           fmt::format("{}{}{}.mlp.experts", row_.prefix, row_.layer, layer)});
    return {source_.gguf() ? matrix(name, {c_.experts, out, in}) : each_expert(name, out, in),
            {},
            module};
  }
  Matrix each_expert(const std::string& name, std::int64_t out, std::int64_t in) {
    std::vector<std::string> each;
    for (std::int64_t e = 0; e < c_.experts; ++e) {
      each.push_back(of_expert(name, e));
      if (!reading_)
        (void)matrix(each.back(), {out, in});
      if (packed_ && source_.form(each.back()) != source_.form(each.front()))
        fail(ErrorKind::File,
             "{}: tensor '{}' is packed otherwise than that of expert 0; those of a layer must all "
             "be floats, or in the same form and groups",
             source_.path_of(each.back()), each.back());
    }
    if (!reading_)
      return zeros({c_.experts, out, in});
    if (packed_ && source_.packed(each.front()))
      return stored(source_.read_packed_stacked(each));
    return stored(source_.read_stacked(each, dtype_));
  }

  LayerWeights layer(std::int64_t i) {
    LayerWeights layer;
    if (row_.pre_norms) {
      layer.input_norm = norm_of(Role::InputNorm, i, c_.width);
      layer.mlp_norm = norm_of(Role::MlpNorm, i, c_.width);
    }
    if (row_.end_norms) {
      layer.attention_end_norm = norm_of(Role::AttentionEndNorm, i, c_.width);
      layer.mlp_end_norm = norm_of(Role::MlpEndNorm, i, c_.width);
    }
    read_attention(layer, i);
    if (c_.expert_layer[static_cast<std::size_t>(i)])
      layer.experts = {tensor(named(Role::Router, i) + ".weight", {c_.experts, c_.width}),
                       expert_matrices(Role::ExpertGate, i, c_.expert_hidden, c_.width),
                       expert_matrices(Role::ExpertUp, i, c_.expert_hidden, c_.width),
                       expert_matrices(Role::ExpertDown, i, c_.width, c_.expert_hidden)};
    else
      read_mlp(layer, i);
    return layer;
  }

  Weights all() {
    Weights w;
    w.embedding = matrix(named(Role::TokenEmbedding, -1) + ".weight", {c_.vocabulary, c_.width});
    if (row_.learned_positions)
      w.positions = tensor(named(Role::PositionEmbedding, -1) + ".weight", {c_.context, c_.width});
    for (std::int64_t i = 0; i < c_.layers; ++i)
      w.layers.push_back(layer(i));
    w.norm = norm_of(Role::FinalNorm, -1, c_.width);
    tied_ = c_.tied.value_or(!source_.contains(named(Role::Head, -1) + ".weight"));
    if (!tied_)
      w.head = linear_of(Role::Head, -1, c_.vocabulary, c_.width, Bias::Never, false);
    return w;
  }

  const TensorSource& source_;
  const Architecture& row_;
  const LanguageConfig& c_;
  const DType dtype_;
  const bool packed_, evaluates_;
  std::string prefix_;
  bool reading_ = false, tied_ = false;
  std::set<std::string> used_;
  std::map<std::string, bool> matrices_; ///< checked, and whether the source has it transposed
  std::vector<LayerMatrix> layer_matrices_;
};

} // namespace

std::string of_expert(const std::string& name, std::int64_t number) {
  std::string one = name;
  return one.replace(one.find("{}"), 2, std::to_string(number));
}

namespace {

Tensor frequencies_of(const Rotary& rotary) {
  Tensor value = tensor(rotary.frequencies);
  value.eval();
  return value;
}

void divide(Rotary& rotary, const std::vector<float>& divisors, const std::string& path) {
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    if (!(divisors[i] > 0))
      fail(ErrorKind::File, "{}: a divisor of the rotary frequencies is {}", path, divisors[i]);
    rotary.frequencies[i] /= divisors[i];
  }
}

} // namespace

void divide_frequencies(const TensorSource& source, const Architecture& architecture,
                        LanguageConfig& config, std::int64_t context) {
  WeightReader reader(source, architecture, config, DType::F32, false);
  const std::size_t pairs = config.rotary.frequencies.size();
  const std::int64_t used = context > 0 ? context : config.context;
  const bool beyond = config.original_context > 0 && used > config.original_context;
  for (const Role role : {Role::RopeFactors, Role::RopeFactorsLong, Role::RopeFactorsShort})
    if (const auto divisors = reader.divisors(role, pairs);
        divisors && role != (beyond ? Role::RopeFactorsShort : Role::RopeFactorsLong))
      divide(config.rotary, *divisors, source.path());
}

Weights read_weights(const TensorSource& source, const Architecture& architecture,
                     LanguageConfig& config, std::int64_t context, DType dtype, bool packed) {
  divide_frequencies(source, architecture, config, context);
  WeightReader reader(source, architecture, config, dtype, packed);
  reader.check();
  Weights weights = reader.read();
  if (!config.rotary.frequencies.empty())
    weights.rotary = frequencies_of(config.rotary);
  if (config.sliding_rotary)
    weights.sliding_rotary = frequencies_of(*config.sliding_rotary);
  return weights;
}

Weights expressed_weights(const TensorSource& source, const Architecture& architecture,
                          const LanguageConfig& config, DType dtype) {
  return WeightReader(source, architecture, config, dtype, false, false).read();
}

DType stored_dtype(const TensorSource& source, const Architecture& architecture,
                   const LanguageConfig& config) {
  return WeightReader(source, architecture, config, DType::F32, false).stored_dtype();
}

std::int64_t Parameters::bytes(const TensorSource& source, DType dtype, bool dequantized) const {
  std::int64_t sum = 0;
  for (const std::string& name : names) {
    const bool packed = source.packed(name);
    if (packed && !dequantized && matrices.contains(name)) {
      sum += source.packed_bytes(name);
      continue;
    }
    std::int64_t count = 1;
    for (const std::int64_t dim : source.shape(name))
      count *= dim;
    sum += count * static_cast<std::int64_t>(size_of(dtype));
  }
  return sum;
}

Parameters parameters_of(const TensorSource& source, const Architecture& architecture,
                         const LanguageConfig& config) {
  WeightReader reader(source, architecture, config, DType::F32, false);
  reader.check();
  return reader.parameters();
}

} // namespace egret::models::language

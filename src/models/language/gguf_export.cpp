// A model's folder as a GGUF file. Keys are those of llama.cpp's gguf-py; gguf_config.cpp reads
// them.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "io/json_file.h"
#include "models/language/config.h"
#include "models/language/folder.h"
#include "models/language/gguf_vocabulary.h"
#include "models/language/quantization_error.h"
#include "models/language/same_model.h"
#include "models/language/weights.h"
#include "support/fail.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace egret::models {

using namespace language;

namespace {

using nlohmann::json;

/// llama.cpp's number of a file whose matrices are mostly of a type.
std::int64_t file_type(io::GgmlType type) {
  switch (type) {
  case io::GgmlType::F16:
    return 1;
  case io::GgmlType::Q4_0:
    return 2;
  case io::GgmlType::Q8_0:
    return 7;
  case io::GgmlType::Q4_K:
    return 14;
  case io::GgmlType::BF16:
    return 32;
  default:
    return 0;
  }
}

/// What readers expect of a real number: one that f32 holds.
double in_f32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

/// A tensor of the file and what it is made of.
struct Planned {
  io::GgufTensorInfo info;
  std::vector<std::string> from; ///< several: stacked
  bool matrix = false, transposed = false, plus_one = false;
  std::int64_t interleaved_heads = 0; ///< rows of heads whose rotary pairs become neighbours
  std::optional<Tensor> values = {};  ///< what is in no file
};

class GgufExport {
public:
  GgufExport(const std::filesystem::path& folder, const GgufExportOptions& options)
      : options_(options), model_(folder, 0, options.ignored_keys), c_(model_.config),
        row_(model_.row), parameters_(parameters_of(model_.source, row_, c_)),
        path_((folder / "config.json").string()) {
    for (const auto& [name, transposed] : parameters_.matrices)
      if (model_.source.packed(name))
        fail(ErrorKind::Value, "{}: tensor '{}' is quantized already", model_.source.path_of(name),
             name);
    put_sizes();
    put_rotary();
    plan_tensors();
    report_.tokenizer = put_tokenizer(metadata_, folder, c_.vocabulary);
    put_stop();
    require_same_model();
  }

  GgufReport write(const std::filesystem::path& out) {
    std::vector<io::GgufTensorInfo> infos;
    for (const Planned& one : planned_)
      infos.push_back(one.info);
    io::GgufWriter writer(out, metadata_, infos);
    for (const Planned& one : planned_) {
      const Tensor values = values_of(one);
      const Tensor blocks = writer.write(values);
      if (one.matrix)
        add_to_report(one, values, blocks);
    }
    writer.commit();
    return {std::move(report_.matrices), report_.tokenizer != WrittenTokenizer::None,
            report_.tokenizer == WrittenTokenizer::Whole};
  }

private:
  void put(const std::string& key, io::GgufValue value) {
    metadata_[std::string(row_.gguf) + "." + key] = std::move(value);
  }

  void put_sizes() {
    const std::filesystem::path folder = std::filesystem::weakly_canonical(model_.path);
    metadata_["general.architecture"] = std::string(row_.gguf);
    metadata_["general.type"] = std::string("model");
    metadata_["general.name"] =
        (folder.has_filename() ? folder : folder.parent_path()).filename().string();
    metadata_["general.file_type"] = file_type(options_.type);
    metadata_["general.quantization_version"] = std::int64_t{2};
    put("vocab_size", c_.vocabulary);
    put("embedding_length", c_.width);
    put("block_count", c_.layers);
    put("context_length", c_.context);
    put("feed_forward_length", c_.hidden);
    put("attention.head_count", c_.heads);
    put("attention.head_count_kv", c_.kv_heads);
    put("attention.key_length", c_.head_size);
    put("attention.value_length", c_.head_size);
    put(row_.norm == Norm::Layer ? "attention.layer_norm_epsilon"
                                 : "attention.layer_norm_rms_epsilon",
        in_f32(c_.norm_eps));
    // Readers have rules of their own for Gemma without it.
    if (c_.attention_scale != 1 / std::sqrt(static_cast<double>(c_.head_size)) || row_.end_norms)
      put("attention.scale", in_f32(c_.attention_scale));
    if (c_.attention_softcap)
      put("attn_logit_softcapping", in_f32(*c_.attention_softcap));
    if (c_.logit_softcap)
      put("final_logit_softcapping", in_f32(*c_.logit_softcap));
    if (std::ranges::find(c_.sliding, true) != c_.sliding.end()) {
      put("attention.sliding_window", c_.window);
      if (std::ranges::find(c_.sliding, false) != c_.sliding.end())
        put("attention.sliding_window_pattern", c_.sliding);
    }
    if (c_.experts > 0) {
      put("expert_count", c_.experts);
      put("expert_used_count", c_.experts_used);
      put("expert_feed_forward_length", c_.expert_hidden);
      if (!c_.normalize_experts)
        put("expert_weights_norm", false);
    }
  }

  void put_rotary() {
    if (row_.learned_positions)
      return;
    Keys keys(io::read_json_object(model_.path / "config.json"), path_);
    const auto [all, sliding] = rotary_parameters(keys);
    const auto number = [&](const char* key, double otherwise) {
      const auto at = all.find(key);
      return at != all.end() && at->is_number() ? at->get<double>() : otherwise;
    };
    const auto count = static_cast<std::int64_t>(c_.rotary.frequencies.size());
    const double base = number("rope_theta", 10000);
    put("rope.freq_base", in_f32(base));
    put("rope.dimension_count", 2 * count);
    if (sliding)
      put("rope.freq_base_swa", in_f32(sliding->value("rope_theta", 10000.0)));
    const std::string type = all.contains("rope_type") ? all.value("rope_type", "default")
                                                       : all.value("type", "default");
    const auto original = [&] {
      return static_cast<std::int64_t>(
          number("original_max_position_embeddings", static_cast<double>(c_.context)));
    };
    if (type == "linear") {
      put("rope.scaling.type", type);
      put("rope.scaling.factor", in_f32(number("factor", 1)));
    } else if (type == "yarn") {
      const double factor =
          number("factor", static_cast<double>(c_.context) / static_cast<double>(original()));
      put("rope.scaling.type", type);
      put("rope.scaling.factor", in_f32(factor));
      put("rope.scaling.original_context_length", original());
      put("rope.scaling.yarn_beta_fast", in_f32(number("beta_fast", 32)));
      put("rope.scaling.yarn_beta_slow", in_f32(number("beta_slow", 1)));
      if (const double more = c_.rotary.factor / yarn_growth(factor); std::abs(more - 1) > 1e-6)
        put("rope.scaling.attn_factor", in_f32(more));
    } else if (type == "longrope" || type == "su") {
      put("rope.scaling.original_context_length", original());
      put("rope.scaling.attn_factor", in_f32(c_.rotary.factor));
      add_divisors(Role::RopeFactorsLong, all.at("long_factor").get<std::vector<float>>());
      add_divisors(Role::RopeFactorsShort, all.at("short_factor").get<std::vector<float>>());
    } else {
      if (c_.rotary.factor != 1)
        put("rope.scaling.attn_factor", in_f32(c_.rotary.factor));
      if (type != "default")
        add_divisors(Role::RopeFactors, divisors(base));
    }
  }

  /// What the frequencies of a base are divided by.
  std::vector<float> divisors(double base) const {
    std::vector<float> divisors;
    const auto count = static_cast<double>(c_.rotary.frequencies.size());
    for (const float frequency : c_.rotary.frequencies)
      divisors.push_back(static_cast<float>(
          std::pow(base, -static_cast<double>(divisors.size()) / count) / frequency));
    return divisors;
  }

  void add_divisors(Role role, const std::vector<float>& values) {
    planned_.push_back({.info = {std::string(name_of(row_, role).gguf) + ".weight",
                                 io::GgmlType::F32,
                                 {std::ssize(values)}},
                        .from = {},
                        .values = tensor(values)});
  }

  void plan_tensors() {
    const std::string first =
        std::string(row_.prefix) + std::string(name_of(row_, Role::TokenEmbedding).safetensors);
    const std::string prefix =
        model_.source.contains(first + ".weight") ? std::string(row_.prefix) : "";
    std::size_t used = 0;
    for (const TensorName& name : tensor_names(row_, c_.layers, prefix))
      used += plan(name.role, name.safetensors, name.gguf);
    ensure(used == parameters_.names.size(), "{}: {} of {} tensors have a name in GGUF files",
           model_.path.string(), used, parameters_.names.size());
  }

  /// How many tensors of the folder it takes.
  std::size_t plan(Role role, const std::string& from, const std::string& to) {
    Planned one;
    const std::size_t number = from.find("{}");
    for (std::int64_t e = 0; e < (number == std::string::npos ? 1 : c_.experts); ++e) {
      std::string name = from;
      if (number != std::string::npos)
        name.replace(number, 2, std::to_string(e));
      if (std::ranges::find(parameters_.names, name) != parameters_.names.end())
        one.from.push_back(name);
    }
    if (one.from.empty())
      return 0;
    const auto at = parameters_.matrices.find(one.from[0]);
    one.matrix = at != parameters_.matrices.end();
    one.transposed = one.matrix && at->second;
    one.plus_one = row_.norm_plus_one && is_norm(role);
    if (row_.gguf_interleaved && (role == Role::Query || role == Role::Key))
      one.interleaved_heads = role == Role::Query ? c_.heads : c_.kv_heads;
    one.info.name = to;
    one.info.shape = model_.source.shape(one.from[0]);
    if (one.transposed)
      std::swap(one.info.shape[0], one.info.shape[1]);
    if (number != std::string::npos)
      one.info.shape.insert(one.info.shape.begin(), c_.experts);
    one.info.type = one.matrix ? type_for(one.info.shape.back()) : io::GgmlType::F32;
    planned_.push_back(std::move(one));
    return planned_.back().from.size();
  }

  /// The type that was asked for, or the next one whose blocks rows of so many values consist of.
  io::GgmlType type_for(std::int64_t in_row) const {
    for (const io::GgmlType type : {options_.type, io::GgmlType::Q8_0})
      if (in_row % io::info_of(type).values == 0)
        return type;
    return io::GgmlType::F16;
  }

  Tensor values_of(const Planned& one) const {
    if (one.values)
      return *one.values;
    std::vector<Tensor> each;
    for (const std::string& name : one.from) {
      Tensor value = model_.source.read(name).to(DType::F32);
      each.push_back(one.transposed ? value.transpose() : value);
    }
    Tensor value = std::ssize(one.info.shape) > each[0].rank() ? stack(each) : each[0];
    if (one.plus_one)
      value = value + 1;
    if (one.interleaved_heads > 0)
      value = take(value, tensor(interleaved_rows(c_, one.interleaved_heads)), 0);
    return value.eval();
  }

  void add_to_report(const Planned& one, const Tensor& values, const Tensor& blocks) {
    const io::GgmlTypeInfo& type = io::info_of(one.info.type);
    const Tensor stored = io::dequantized(one.info.type, blocks);
    std::int64_t before = 0;
    for (const std::string& name : one.from)
      before += values.numel() / std::ssize(one.from) *
                static_cast<std::int64_t>(size_of(model_.source.dtype(name)));
    report_.matrices.push_back({one.info.name, relative_error(values, stored), before,
                                values.numel() / type.values * type.bytes, type.name});
  }

  /// Tokens that end a text: the tokenizer's first.
  void put_stop() {
    std::vector<std::int64_t> stop;
    if (const auto at = metadata_.find(kStopKeys[0]); at != metadata_.end())
      stop.push_back(std::get<std::int64_t>(at->second));
    for (const int id : c_.stop)
      if (std::ranges::find(stop, id) == stop.end())
        stop.push_back(id);
    if (stop.size() > kStopKeys.size())
      fail(ErrorKind::Unsupported, "{}: {} tokens end a text; a GGUF file has keys for {}", path_,
           stop.size(), kStopKeys.size());
    for (std::size_t i = 0; i < stop.size(); ++i)
      metadata_[kStopKeys[i]] = stop[i];
  }

  /// Reads the metadata back: what has no key there would be lost without a word.
  void require_same_model() const {
    std::vector<io::GgufTensorInfo> infos;
    for (const Planned& one : planned_)
      infos.push_back(one.info);
    const Architecture& row = architecture_of(row_.gguf, true, path_);
    Keys keys(config_of_gguf(metadata_, infos, row, path_, {}), path_);
    LanguageConfig read = read_config(keys, row, model_.context);
    for (const Planned& one : planned_) // divisors that a reader applies
      if (one.values && is_used(one.info.name)) {
        const auto divisors = one.values->to_vector<float>();
        for (std::size_t i = 0; i < divisors.size(); ++i)
          read.rotary.frequencies.at(i) /= divisors[i];
      }
    if (const char* what = difference(read, c_))
      fail(ErrorKind::Unsupported, "{}: {}: GGUF files of the architecture '{}' cannot say it",
           path_, what, row_.gguf);
  }

  bool is_used(const std::string& name) const {
    const bool beyond = c_.original_context > 0 && model_.context > c_.original_context;
    const Role other = beyond ? Role::RopeFactorsShort : Role::RopeFactorsLong;
    return name != std::string(name_of(row_, other).gguf) + ".weight";
  }

  const GgufExportOptions& options_;
  ModelFolder model_;
  const LanguageConfig& c_;
  const Architecture& row_;
  Parameters parameters_;
  std::string path_;
  io::GgufMetadata metadata_;
  std::vector<Planned> planned_;
  struct {
    std::vector<QuantizedMatrix> matrices;
    WrittenTokenizer tokenizer = WrittenTokenizer::None;
  } report_;
};

} // namespace

GgufReport export_gguf(const std::filesystem::path& folder, const std::filesystem::path& out,
                       const GgufExportOptions& options) {
  return GgufExport(folder, options).write(out);
}

} // namespace egret::models

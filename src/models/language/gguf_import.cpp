// A GGUF file as a model's folder. Keys are those of llama.cpp's gguf-py.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "egret/tokenizer.h"
#include "models/language/config.h"
#include "models/language/folder.h"
#include "models/language/gguf_vocabulary.h"
#include "models/language/hub_config.h"
#include "models/language/same_model.h"
#include "models/language/sources.h"
#include "models/language/weights.h"
#include "support/fail.h"

#include <algorithm>

namespace egret::models {

using namespace language;

namespace {

using nlohmann::json;

/// Tensors of the folder and what they are made of.
struct Planned {
  std::string from;
  std::vector<std::string> to; ///< several: of experts, in their order
  std::vector<std::int64_t> shape;
  DType dtype = DType::F32;
  bool transposed = false, less_one = false;
  std::int64_t interleaved_heads = 0; ///< rows of heads whose rotary pairs are neighbours
};

const Architecture& architecture_of_file(const io::GgufFile& file, const std::string& path) {
  const auto found = file.metadata().find("general.architecture");
  const auto* name =
      found == file.metadata().end() ? nullptr : std::get_if<std::string>(&found->second);
  if (name == nullptr)
    fail(ErrorKind::File, "{}: 'general.architecture' is missing", path);
  return architecture_of(*name, true, path);
}

class GgufImport {
public:
  GgufImport(const std::filesystem::path& path, const GgufImportOptions& options)
      : options_(options), path_(path.string()), file_(path),
        read_row_(architecture_of_file(file_, path_)),
        keys_(config_of_gguf(file_.metadata(), file_.tensors(), read_row_, path_,
                             options.ignored_keys)),
        c_(config(keys_, read_row_, 0)), row_(hub_row(read_row_, c_, path_)), source_(path, file_),
        parameters_(parameters_of(source_, read_row_, c_)) {
    plan_tensors();
    config_ =
        hub_config({row_, c_, keys_, divisors(Role::RopeFactors), divisors(Role::RopeFactorsLong),
                    divisors(Role::RopeFactorsShort),
                    has_biases({Role::Query, Role::Key, Role::Value, Role::Qkv, Role::Output}),
                    has_biases({Role::Gate, Role::Up, Role::GateUp, Role::Down}), stored_dtype(),
                    token("tokenizer.ggml.bos_token_id"), token("tokenizer.ggml.padding_token_id")},
                   path_);
    for (const std::int64_t context : {std::min(c_.context, kDefaultContext), c_.context})
      require_same_model(context);
    put_files();
  }

  bool has_tokenizer() const { return has_tokenizer_; }

  void write(const std::filesystem::path& out) {
    std::vector<io::TensorInfo> infos;
    for (const Planned& one : planned_)
      for (const std::string& name : one.to)
        infos.push_back({name, one.dtype, one.shape, 0, 0});
    ModelFolderWriter writer(out, std::move(files_), std::move(infos));
    for (const Planned& one : planned_) {
      const Tensor value = value_of(one);
      if (one.to.size() == 1 && value.rank() == std::ssize(one.shape)) {
        writer.write(one.to[0], value);
        continue;
      }
      for (std::size_t e = 0; e < one.to.size(); ++e)
        writer.write(one.to[e], value.select(0, static_cast<std::int64_t>(e)));
    }
    writer.commit();
  }

private:
  LanguageConfig config(const json& of, const Architecture& row, std::int64_t context) const {
    Keys keys(of, path_);
    return read_config(keys, row, context);
  }

  std::vector<float> divisors(Role role) const {
    const std::string name = std::string(name_of(read_row_, role).gguf) + ".weight";
    if (!source_.contains(name))
      return {};
    std::vector<float> values = source_.read(name).to_vector<float>();
    if (values.size() != c_.rotary.frequencies.size() ||
        !std::ranges::all_of(values, [](float value) { return value > 0; }))
      fail(ErrorKind::File, "{}: '{}' has no positive divisor for each of {} frequencies", path_,
           name, c_.rotary.frequencies.size());
    return values;
  }

  std::optional<std::int64_t> token(const char* key) const {
    const auto at = file_.metadata().find(key);
    if (at == file_.metadata().end())
      return {};
    const auto* id = std::get_if<std::int64_t>(&at->second);
    return id == nullptr ? std::nullopt : std::optional(*id);
  }

  void plan_tensors() {
    std::size_t used = 0;
    for (const TensorName& name : tensor_names(row_, c_.layers, std::string(row_.prefix)))
      if (std::ranges::find(parameters_.names, name.gguf) != parameters_.names.end()) {
        plan(name);
        ++used;
      }
    ensure(used == parameters_.names.size(), "{}: {} of {} tensors have a name in folders", path_,
           used, parameters_.names.size());
  }

  void plan(const TensorName& name) {
    Planned one{.from = name.gguf, .to = {}, .shape = source_.shape(name.gguf)};
    const bool matrix = parameters_.matrices.contains(name.gguf);
    one.dtype =
        matrix ? options_.dtype.value_or(source_.dtype(name.gguf)) : source_.dtype(name.gguf);
    if (name.safetensors.find("{}") != std::string::npos) {
      for (std::int64_t e = 0; e < c_.experts; ++e)
        one.to.push_back(of_expert(name.safetensors, e));
      one.shape.erase(one.shape.begin());
    } else {
      one.to.push_back(name.safetensors);
    }
    one.transposed = row_.transposed && name.layer >= 0 && matrix;
    if (one.transposed)
      std::swap(one.shape[0], one.shape[1]);
    one.less_one = row_.norm_plus_one && is_norm(name.role);
    if (row_.gguf_interleaved && (name.role == Role::Query || name.role == Role::Key))
      one.interleaved_heads = name.role == Role::Query ? c_.heads : c_.kv_heads;
    planned_.push_back(std::move(one));
  }

  /// Whether projections of these parts have biases: transformers has one key for all of them.
  bool has_biases(const std::vector<Role>& roles) const {
    std::size_t open = 0, with = 0;
    for (const TensorName& name : tensor_names(row_, c_.layers, std::string(row_.prefix))) {
      if (name.layer < 0 || std::ranges::find(roles, name.role) == roles.end() ||
          !source_.contains(name.gguf))
        continue;
      const bool attention = roles[0] == Role::Query;
      const Bias bias = !attention                  ? row_.mlp_bias
                        : name.role == Role::Output ? row_.output_bias
                                                    : row_.qkv_bias;
      if (name.bias && bias == Bias::Never)
        refuse("biases");
      if (bias == Bias::Configured)
        (name.bias ? with : open) += 1;
    }
    if (with != 0 && with != open)
      refuse("biases of some projections");
    return with != 0;
  }

  [[noreturn]] void refuse(const char* what) const {
    fail(ErrorKind::Unsupported, "{}: {}: config.json of the model type '{}' cannot say it", path_,
         what, row_.name);
  }

  /// That of the table of tokens.
  DType stored_dtype() const {
    const std::string table = std::string(name_of(row_, Role::TokenEmbedding).gguf) + ".weight";
    return std::ranges::find(planned_, table, &Planned::from)->dtype;
  }

  /// Reads config.json back: what it cannot say would be lost without a word.
  void require_same_model(std::int64_t context) const {
    LanguageConfig wanted = config(keys_, read_row_, context);
    divide_frequencies(source_, read_row_, wanted, context);
    Keys keys(json::parse(config_.dump()), path_);
    const LanguageConfig read = read_config(keys, row_, context);
    keys.require_all_read({});
    if (const char* what = difference(read, wanted))
      refuse(what);
  }

  void put_files() {
    const auto& metadata = file_.metadata();
    has_tokenizer_ = metadata.contains("tokenizer.ggml.model") || metadata.contains(kTokenizerJson);
    if (has_tokenizer_) {
      TokenizerFiles tokenizer = tokenizer_files(metadata, path_);
      Tokenizer::parse(tokenizer.tokenizer, tokenizer.config, path_); // or an error
      json config = json::parse(tokenizer.config);
      config["tokenizer_class"] = "PreTrainedTokenizerFast";
      config["clean_up_tokenization_spaces"] = false;
      config["model_max_length"] = c_.context;
      files_.push_back({"tokenizer.json", std::move(tokenizer.tokenizer)});
      files_.push_back({"tokenizer_config.json", config.dump(2) + "\n"});
    }
    nlohmann::ordered_json generation;
    for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
      if (!config_[key].is_null())
        generation[key] = config_[key];
    if (!generation.empty())
      files_.push_back({"generation_config.json", generation.dump(2) + "\n"});
    files_.push_back({"config.json", config_.dump(2) + "\n"});
  }

  Tensor value_of(const Planned& one) const {
    Tensor value = source_.read(one.from);
    if (one.interleaved_heads > 0) {
      const std::vector<std::int64_t> rows = interleaved_rows(c_, one.interleaved_heads);
      std::vector<std::int64_t> back(rows.size());
      for (std::size_t i = 0; i < rows.size(); ++i)
        back[static_cast<std::size_t>(rows[i])] = static_cast<std::int64_t>(i);
      value = take(value, tensor(back), 0);
    }
    if (one.less_one)
      value = value.to(DType::F32) - 1;
    if (one.transposed)
      value = value.transpose();
    return value.to(one.dtype).eval();
  }

  const GgufImportOptions& options_;
  std::string path_;
  io::GgufFile file_;
  const Architecture& read_row_;
  json keys_;
  LanguageConfig c_; ///< of the file, without divisors of frequencies
  const Architecture& row_;
  GgufSource source_;
  Parameters parameters_;
  std::vector<Planned> planned_;
  nlohmann::ordered_json config_;
  std::vector<FolderFile> files_;
  bool has_tokenizer_ = false;
};

} // namespace

bool import_gguf(const std::filesystem::path& file, const std::filesystem::path& out,
                 const GgufImportOptions& options) {
  if (options.dtype && !is_float(*options.dtype))
    fail(ErrorKind::DType, "import_gguf: {} is no float", name_of(*options.dtype));
  require_new_folder(out);
  GgufImport import(file, options);
  import.write(out);
  return import.has_tokenizer();
}

} // namespace egret::models

#include "models/language/folder.h"

#include "io/json_file.h"
#include "models/language/config.h"
#include "support/fail.h"
#include "support/output_file.h"
#include "support/path_status.h"
#include "support/read_text.h"

#include <algorithm>

namespace egret::models::language {

namespace {

constexpr const char* kWeights = "model.safetensors";

GenerateOptions read_defaults(const std::filesystem::path& folder, LanguageConfig& config) {
  GenerateOptions options;
  const std::filesystem::path path = folder / "generation_config.json";
  if (!path_exists(path))
    return options;
  Keys keys(io::read_json_object(path), path.string());
  if (keys.flag({"do_sample"}, false)) {
    options.temperature = keys.number({"temperature"}, 0, 1e6, 1);
    options.top_k = keys.integer({"top_k"}, 0, 1 << 24, 50);
    options.top_p = keys.number({"top_p"}, 1e-9, 1, 1);
    options.min_p = keys.number({"min_p"}, 0, 1, 0);
  }
  options.repetition_penalty = keys.number({"repetition_penalty"}, 1e-6, 1e6, 1);
  if (const auto stop = keys.tokens({"eos_token_id"}); !stop.empty())
    config.stop = stop;
  return options;
}

} // namespace

struct ModelFolder::Read {
  const Architecture& row;
  LanguageConfig config;
  std::int64_t context;
};

ModelFolder::Read ModelFolder::read(const std::filesystem::path& folder, std::int64_t context,
                                    const std::vector<std::string>& ignored_keys) {
  if (!path_is_folder(folder))
    fail(ErrorKind::File, "{}: is no folder; one with config.json and safetensors is needed",
         folder.string());
  const std::filesystem::path path = folder / "config.json";
  Keys keys(io::read_json_object(path), path.string());
  const Architecture& row = architecture_of(keys.text({"model_type"}), false, path.string());
  const std::int64_t most =
      keys.integer({"max_position_embeddings", "n_positions"}, 1, std::int64_t{1} << 30);
  const std::int64_t used = context > 0 ? context : std::min(most, kDefaultContext);
  LanguageConfig config = read_config(keys, row, used);
  keys.require_all_read(ignored_keys);
  return {row, std::move(config), used};
}

ModelFolder::ModelFolder(const std::filesystem::path& folder, std::int64_t asked,
                         const std::vector<std::string>& ignored_keys)
    : ModelFolder(folder, read(folder, asked, ignored_keys)) {}

ModelFolder::ModelFolder(const std::filesystem::path& folder, Read read)
    : path(folder), row(read.row), config(std::move(read.config)), context(read.context),
      defaults(read_defaults(folder, config)), source(folder) {}

Decoder ModelFolder::decoder(DType dtype) const {
  return {config, dtype, row.norm_plus_one, row.query_key_norm == QueryKeyNorm::Whole};
}

void require_new_folder(const std::filesystem::path& out) {
  std::error_code error;
  const bool there = std::filesystem::exists(out, error);
  if (there && (!path_is_folder(out) || !std::filesystem::is_empty(out, error)))
    fail(ErrorKind::File, "{}: is there already and not empty", out.string());
}

std::vector<FolderFile> files_like(const std::filesystem::path& like) {
  std::vector<FolderFile> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "special_tokens_map.json", "generation_config.json", "config.json"})
    if (path_exists(like / name))
      files.push_back({name, read_text(like / name)});
  return files;
}

ModelFolderWriter::ModelFolderWriter(const std::filesystem::path& out,
                                     std::vector<FolderFile> files,
                                     std::vector<io::TensorInfo> tensors)
    : out_(out), files_(std::move(files)) {
  std::error_code error;
  made_ = std::filesystem::create_directories(out, error);
  if (error)
    fail(ErrorKind::File, "{}: cannot be made: {}", out.string(), error.message());
  try {
    weights_.emplace(out / kWeights, std::move(tensors), io::Metadata{{"format", "pt"}});
  } catch (...) {
    if (made_)
      std::filesystem::remove(out, error);
    throw;
  }
}

ModelFolderWriter::~ModelFolderWriter() {
  std::error_code ignored;
  weights_.reset(); // with its temporary file
  for (const std::filesystem::path& path : fresh_)
    std::filesystem::remove(path, ignored);
  if (made_)
    std::filesystem::remove(out_, ignored); // that is empty
}

void ModelFolderWriter::commit() {
  const auto is_new = [&](const std::string& name) {
    if (!path_exists(out_ / name))
      fresh_.push_back(out_ / name);
  };
  is_new(kWeights);
  weights_->commit();
  for (const FolderFile& file : files_) {
    is_new(file.name);
    write_output("model folder", out_ / file.name, file.text);
  }
  fresh_.clear();
  made_ = false;
}

void write_model_folder(const std::filesystem::path& out, const std::filesystem::path& like,
                        const io::TensorMap& tensors) {
  std::vector<io::TensorInfo> infos;
  for (const auto& [name, value] : tensors)
    infos.push_back({name, value.dtype(), value.sizes(), 0, 0});
  ModelFolderWriter writer(out, files_like(like), std::move(infos));
  for (const auto& [name, value] : tensors)
    writer.write(name, value);
  writer.commit();
}

} // namespace egret::models::language

// A model's folder in the layout of Hugging Face's hub, read but for its weights.
#pragma once

#include "egret/language_model.h"
#include "models/language/architecture.h"
#include "models/language/decoder.h"
#include "models/language/sources.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::models::language {

/// Positions of a cache where none are asked for.
inline constexpr std::int64_t kDefaultContext = 4096;

struct ModelFolder {
  /// Errors as LanguageModel::load(). `context` is that of the cache or of the rows of a training,
  /// which longrope chooses by; 0: the model's own, at most kDefaultContext.
  ModelFolder(const std::filesystem::path& folder, std::int64_t context,
              const std::vector<std::string>& ignored_keys);

  std::filesystem::path path;
  const Architecture& row;
  LanguageConfig config;
  std::int64_t context;     ///< that was asked for, or chosen
  GenerateOptions defaults; ///< of generation_config.json
  FolderSource source;

  Decoder decoder(DType dtype) const;

private:
  struct Read;
  ModelFolder(const std::filesystem::path& folder, Read read);
  static Read read(const std::filesystem::path& folder, std::int64_t context,
                   const std::vector<std::string>& ignored_keys);
};

/// Error(File) unless there is nothing at `out`, or an empty folder.
void require_new_folder(const std::filesystem::path& out);

/// A file of a model's folder beside its weights.
struct FolderFile {
  std::string name, text;
};
/// Those that `like` has: the tokenizer's files and the configuration.
std::vector<FolderFile> files_like(const std::filesystem::path& like);

/// Makes the folder of a model tensor by tensor. Without commit() the files that were not there
/// before are removed, and the folder if it was made here.
class ModelFolderWriter {
public:
  /// `files` are written in their order, so config.json is the last. Errors here and below as
  /// io::SafetensorsWriter, and Error(File).
  ModelFolderWriter(const std::filesystem::path& out, std::vector<FolderFile> files,
                    std::vector<io::TensorInfo> tensors);
  ~ModelFolderWriter();
  ModelFolderWriter(const ModelFolderWriter&) = delete;
  ModelFolderWriter& operator=(const ModelFolderWriter&) = delete;

  void write(std::string_view name, const Tensor& value) { weights_->write(name, value); }
  /// Puts the weights there, then the files beside them: config.json last, as a folder without it
  /// is no model.
  void commit();

private:
  std::filesystem::path out_;
  std::vector<FolderFile> files_;
  bool made_;                                ///< the folder, here
  std::vector<std::filesystem::path> fresh_; ///< files that were not there before
  std::optional<io::SafetensorsWriter> weights_;
};

/// A folder with the tensors, in a ModelFolderWriter.
void write_model_folder(const std::filesystem::path& out, const std::filesystem::path& like,
                        const io::TensorMap& tensors);

} // namespace egret::models::language

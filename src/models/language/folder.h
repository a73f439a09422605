// A model's folder in the layout of Hugging Face's hub, read but for its weights.
#pragma once

#include "egret/language_model.h"
#include "models/language/architecture.h"
#include "models/language/decoder.h"
#include "models/language/sources.h"

#include <cstdint>
#include <filesystem>
#include <string>
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

/// Makes the folder `out` with model.safetensors, then copies what belongs to the model beside the
/// weights: the tokenizer's files and, last, config.json, as a folder without it is no model.
/// Error(File).
void write_model_folder(const std::filesystem::path& out, const std::filesystem::path& like,
                        const io::TensorMap& tensors);

} // namespace egret::models::language

// Where the tensors of a model come from: folders and GGUF files.
#pragma once

#include "egret/gguf.h"
#include "egret/sharded_tensors.h"
#include "models/language/weights.h"

#include <filesystem>
#include <map>

namespace egret::models::language {

/// How quantize_language_model() stores a matrix NAME: integers as NAME.int4 or NAME.int8, u8
/// [..., out, in · bits / 8], and their scales as NAME.scale, [..., out, in / group].
struct PackedName {
  static std::string packed(const std::string& name, int bits);
  static std::string scale(const std::string& name) { return name + ".scale"; }
};

class FolderSource final : public TensorSource {
public:
  /// Error(File) for packed matrices without scales, of other dtypes or of shapes that do not fit.
  explicit FolderSource(const std::filesystem::path& folder);
  bool gguf() const override { return false; }
  std::string path() const override { return folder_.string(); }
  std::string path_of(const std::string& name) const override;
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override;
  std::vector<std::int64_t> shape(const std::string& name) const override;
  Tensor read(const std::string& name) const override;
  bool packed(const std::string& name) const override { return packed_.contains(name); }
  Matrix read_packed(const std::string& name) const override { return integers(name); }
  std::int64_t packed_bytes(const std::string& name) const override;
  DType dtype(const std::string& name) const override; ///< U8 for packed ones

private:
  struct Packed {
    std::string integers, scale; ///< names of the tensors
    std::vector<std::int64_t> shape;
    int bits;
    std::int64_t group;
  };
  void add_packed(const std::string& name, int bits);
  Quantized integers(const std::string& name) const;

  std::filesystem::path folder_;
  io::ShardedTensors tensors_;
  std::map<std::string, Packed> packed_; ///< by the name of the matrix
};

class GgufSource final : public TensorSource {
public:
  /// `file` outlives it.
  GgufSource(const std::filesystem::path& path, const io::GgufFile& file)
      : path_(path), file_(file) {}
  bool gguf() const override { return true; }
  std::string path() const override { return path_.string(); }
  std::string path_of(const std::string&) const override { return path_.string(); }
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override { return file_.contains(name); }
  std::vector<std::int64_t> shape(const std::string& name) const override {
    return file_.info(name).shape;
  }
  DType dtype(const std::string& name) const override; ///< F32 for blocks
  Tensor read(const std::string& name) const override { return file_.read(name); }
  bool packed(const std::string& name) const override;
  Matrix read_packed(const std::string& name) const override;
  std::int64_t packed_bytes(const std::string& name) const override;

private:
  std::filesystem::path path_;
  const io::GgufFile& file_;
};

/// Tensors in memory under the names that a folder has for them, such as parameters in training.
class MemorySource final : public TensorSource {
public:
  /// `tensors` outlive it; `path` is for messages.
  MemorySource(const io::TensorMap& tensors, std::string path)
      : tensors_(tensors), path_(std::move(path)) {}
  bool gguf() const override { return false; }
  std::string path() const override { return path_; }
  std::string path_of(const std::string&) const override { return path_; }
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override { return tensors_.contains(name); }
  std::vector<std::int64_t> shape(const std::string& name) const override;
  DType dtype(const std::string& name) const override { return tensors_.at(name).dtype(); }
  Tensor read(const std::string& name) const override { return tensors_.at(name); }
  bool packed(const std::string&) const override { return false; }
  /// Never asked for.
  Matrix read_packed(const std::string& name) const override;
  std::int64_t packed_bytes(const std::string&) const override { return 0; }

private:
  const io::TensorMap& tensors_;
  std::string path_;
};

} // namespace egret::models::language

// Where the tensors of a model come from: folders and GGUF files.
#pragma once

#include "egret/gguf.h"
#include "egret/language_model.h"
#include "egret/sharded_tensors.h"
#include "models/language/weights.h"

#include <filesystem>
#include <map>
#include <optional>
#include <span>

namespace egret::models::language {

/// How a folder stores a matrix NAME in a form: values as NAME.int4, NAME.int8 or NAME.uint4, u8
/// [..., out, in · bits / 8], or as NAME.f8e4m3 [..., out, in]; their scales as NAME.scale, [...,
/// out, in / group], and zero points as NAME.zero, u8 of the same shape.
struct FormRow {
  WeightForm form;
  const char* name; ///< behind the matrix's
  int bits;
  bool zero_points;
  DType dtype; ///< of the stored values
};
std::span<const FormRow> weight_forms();
const FormRow& row_of(WeightForm form);
std::string scale_name(const std::string& matrix);
std::string zero_name(const std::string& matrix);

class FolderSource final : public TensorSource {
public:
  /// Error(File) for packed matrices without scales or zero points, of other dtypes or of shapes
  /// that do not fit.
  explicit FolderSource(const std::filesystem::path& folder);
  bool gguf() const override { return false; }
  std::string path() const override { return folder_.string(); }
  std::string path_of(const std::string& name) const override;
  std::vector<std::string> names() const override;
  bool contains(const std::string& name) const override;
  std::vector<std::int64_t> shape(const std::string& name) const override;
  Tensor read(const std::string& name) const override;
  bool packed(const std::string& name) const override { return packed_.contains(name); }
  Matrix read_packed(const std::string& name) const override { return grouped({name}, false); }
  std::int64_t packed_bytes(const std::string& name) const override;
  PackedForm form(const std::string& name) const override;
  Tensor read_stacked(const std::vector<std::string>& names, DType dtype) const override;
  Matrix read_packed_stacked(const std::vector<std::string>& names) const override {
    return grouped(names, true);
  }
  DType dtype(const std::string& name) const override; ///< that of the values for packed ones
  DType scale_dtype(const std::string& name) const;    ///< of a packed one

private:
  struct Packed {
    std::string values, scale; ///< names of the tensors
    std::optional<std::string> zero;
    std::vector<std::int64_t> shape;
    int bits;
    std::int64_t group;
  };
  void add_packed(const std::string& name, const FormRow& row);
  Grouped grouped(const std::vector<std::string>& names, bool stacked) const;

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

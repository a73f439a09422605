// Tensors of a folder in the layout that Hugging Face's hub uses: one safetensors file, or several
// with an index.
#pragma once

#include "egret/io.h"

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::io {

/// The tensors of model.safetensors, or of the files that model.safetensors.index.json lists in its
/// weight_map. Error(File) naming the file and the tensor when neither is there, when the index is
/// damaged or names a file outside of the folder, when a tensor is not in the file that the index
/// says, is in a file without being listed, or is in two.
class ShardedTensors {
public:
  explicit ShardedTensors(const std::filesystem::path& folder);

  std::vector<std::string> names() const; ///< in alphabetical order
  bool contains(std::string_view name) const noexcept;
  const TensorInfo& info(std::string_view name) const; ///< Error(Value) for an unknown name
  /// The file that holds a tensor.
  const std::filesystem::path& path_of(std::string_view name) const;
  Tensor read(std::string_view name) const;
  /// Several along a new first axis, each read to its place in the result. Error(Value) for none,
  /// and for those of another shape or dtype than the first.
  Tensor read_stacked(const std::vector<std::string>& names) const;

private:
  struct Shard {
    std::filesystem::path path;
    SafetensorsFile file;
  };
  const Shard& shard_of(std::string_view name) const;

  std::filesystem::path folder_;
  std::vector<Shard> shards_;
  std::map<std::string, std::size_t, std::less<>> shard_; ///< of each tensor
};

} // namespace egret::io

#include "egret/sharded_tensors.h"

#include "io/json_file.h"
#include "io/tensor_bytes.h"
#include "support/fail.h"
#include "support/path_status.h"
#include "support/printable.h"

#include <algorithm>
#include <set>

namespace egret::io {

namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

/// The file of each tensor, as the index says.
std::map<std::string, std::string> weight_map(const std::filesystem::path& index) {
  const nlohmann::json json = read_json_object(index);
  const auto found = json.find("weight_map");
  if (found == json.end() || !found->is_object() || found->empty())
    fail(ErrorKind::File, "{}: 'weight_map' is missing or no list of tensors", index.string());
  std::map<std::string, std::string> files;
  for (const auto& [name, file] : found->items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    // A plain name: nothing outside of the folder is opened.
    if (text.empty() || text == "." || text == ".." ||
        text.find_first_of(std::string_view("/\\\0", 3)) != std::string::npos)
      fail(ErrorKind::File, "{}: tensor '{}': '{}' is no name of a file in the folder",
           index.string(), printable(name), printable(text));
    files.emplace(name, text);
  }
  return files;
}

} // namespace

ShardedTensors::ShardedTensors(const std::filesystem::path& folder) : folder_(folder) {
  const std::filesystem::path index = folder / kIndex, single = folder / kSingle;
  if (!path_exists(index)) {
    if (!path_exists(single))
      fail(ErrorKind::File, "{}: neither {} nor {} is there", folder.string(), kSingle, kIndex);
    shards_.push_back({single, SafetensorsFile(single)});
    for (const TensorInfo& info : shards_[0].file.tensors())
      shard_.emplace(info.name, 0);
    return;
  }
  const auto listed = weight_map(index);
  std::set<std::string> files;
  for (const auto& [name, file] : listed)
    files.insert(file);
  for (const std::string& file : files) {
    shards_.push_back({folder / file, SafetensorsFile(folder / file)});
    const Shard& shard = shards_.back();
    for (const TensorInfo& info : shard.file.tensors()) {
      const auto entry = listed.find(info.name);
      if (entry == listed.end())
        fail(ErrorKind::File, "{}: tensor '{}' is not listed in {}", shard.path.string(),
             printable(info.name), kIndex);
      if (entry->second != file)
        fail(ErrorKind::File, "{}: tensor '{}' is here, {} says {}", shard.path.string(),
             printable(info.name), kIndex, printable(entry->second));
      shard_.emplace(info.name, shards_.size() - 1);
    }
  }
  for (const auto& [name, file] : listed)
    if (!shard_.contains(name))
      fail(ErrorKind::File, "{}: tensor '{}' is missing, {} says it is here",
           (folder / file).string(), printable(name), kIndex);
}

const ShardedTensors::Shard& ShardedTensors::shard_of(std::string_view name) const {
  const auto found = shard_.find(name);
  if (found == shard_.end())
    fail(ErrorKind::Value, "{}: no tensor '{}' among {}", folder_.string(), name, shard_.size());
  return shards_[found->second];
}

std::vector<std::string> ShardedTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : shard_)
    names.push_back(name);
  return names;
}
bool ShardedTensors::contains(std::string_view name) const noexcept {
  return shard_.contains(name);
}
const TensorInfo& ShardedTensors::info(std::string_view name) const {
  return shard_of(name).file.info(name);
}
const std::filesystem::path& ShardedTensors::path_of(std::string_view name) const {
  return shard_of(name).path;
}
Tensor ShardedTensors::read(std::string_view name) const {
  return shard_of(name).file.read(name);
}

Tensor ShardedTensors::read_stacked(const std::vector<std::string>& names) const {
  if (names.empty())
    fail(ErrorKind::Value, "{}: no tensors to stack", folder_.string());
  const TensorInfo& first = info(names[0]);
  std::vector<const SafetensorsFile*> files;
  for (const std::string& name : names) {
    files.push_back(&shard_of(name).file);
    if (const TensorInfo& one = info(name); one.shape != first.shape || one.dtype != first.dtype)
      fail(ErrorKind::Value, "{}: tensor '{}' is {} [{}], '{}' is {} [{}]: they cannot be stacked",
           path_of(name).string(), name, name_of(one.dtype), fmt::join(one.shape, ","), names[0],
           name_of(first.dtype), fmt::join(first.shape, ","));
  }
  std::vector<std::int64_t> shape = first.shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(names.size()));
  const std::uint64_t each = first.end - first.begin;
  return tensor_read_by(first.dtype, shape, [&](std::uint64_t offset, std::span<std::byte> out) {
    while (!out.empty()) {
      const std::uint64_t i = offset / each, at = offset % each;
      const std::size_t n = std::min<std::uint64_t>(out.size(), each - at);
      files[i]->read_bytes(names[i], at, out.first(n));
      out = out.subspan(n);
      offset += n;
    }
  });
}

} // namespace egret::io

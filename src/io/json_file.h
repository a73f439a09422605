// Small JSON files that come with models.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace egret::io {

/// The object that a JSON file of at most 64 MiB holds. Error(File) that names the file when it
/// cannot be read or is no JSON object.
nlohmann::json read_json_object(const std::filesystem::path& path);

} // namespace egret::io

// The header of a safetensors file: checked text <-> the list of its tensors. No file and no tensor
// data here.
#pragma once

#include "egret/io.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace egret::io {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors; ///< by place of their data
  Metadata metadata;
};

/// Reads the JSON text that starts at byte 8, followed by `data_bytes` of tensor data. Checks
/// everything that the format promises: UTF-8, nesting, names and fields given once, dtypes, shapes
/// against byte ranges, ranges that cover the data without gap or overlap. Throws Error(File) with
/// the offset in the file; `path` is for messages.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_bytes,
                                           const std::filesystem::path& path);

/// The first bytes of a file: length, JSON, spaces up to a multiple of 8.
std::string safetensors_header_text(const SafetensorsHeader& header);

/// Product of the dims times the size of an element; throws Error(Value) when it exceeds 2^63-1.
std::uint64_t bytes_of(DType dtype, const std::vector<std::int64_t>& shape);

} // namespace egret::io

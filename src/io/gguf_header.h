// The header of a GGUF file: metadata and the list of tensors, read and checked. No tensor data
// here.
#pragma once

#include "egret/gguf.h"
#include "io/file.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace egret::io {

inline constexpr std::string_view kGgufMagic = "GGUF";
inline constexpr std::uint32_t kMostGgufDims = 4;          // GGML_MAX_DIMS
inline constexpr std::uint64_t kMostGgufNameBytes = 63;    // GGML_MAX_NAME
inline constexpr std::uint64_t kDefaultGgufAlignment = 32; ///< of data, in bytes

/// Types of metadata values, by the format's numbers.
enum class GgufValueType : std::uint32_t {
  U8,
  I8,
  U16,
  I16,
  U32,
  I32,
  F32,
  Bool,
  String,
  Array,
  U64,
  I64,
  F64
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensorInfo> tensors; ///< in the order of the file
  std::uint64_t data_start = 0;        ///< offset in the file
};

/// Reads and checks everything that stands before the data, and that the data of all tensors lies
/// in the file without overlap. Memory is bounded by a multiple of the file's size. Throws
/// Error(File) with the offset in the file.
GgufHeader read_gguf_header(const InputFile& file);

} // namespace egret::io

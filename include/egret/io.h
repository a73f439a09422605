// Tensors in files: safetensors, NPY, NPZ, IDX, and gzip around them.
// Files are taken to be hostile: every size is checked against the file before memory is asked for,
// and what does not fit is refused with Error(File) that names the file, the offset and the reason.
// Files are written whole or not at all: beside the destination, synced to the disk and then
// renamed over it, so that a kill in the middle leaves the old file as it was.
#pragma once

#include "egret/tensor.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace egret::io {

/// A tensor's place in a file.
struct TensorInfo {
  std::string name;
  DType dtype = DType::F32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0; ///< bytes, counted from the start of the data
};

using Metadata = std::map<std::string, std::string>;
using TensorMap = std::map<std::string, Tensor>; ///< by name

/// An open safetensors file: its header is read and checked, tensors are read when they are asked
/// for.
class SafetensorsFile {
public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  ~SafetensorsFile();
  SafetensorsFile(SafetensorsFile&&) noexcept;

  const std::vector<TensorInfo>& tensors() const noexcept; ///< in the order of their data
  const Metadata& metadata() const noexcept;
  bool contains(std::string_view name) const noexcept;
  const TensorInfo&
  info(std::string_view name) const; ///< throws Error(Value) with the nearest names
  /// Part of a tensor's bytes, little-endian, from `offset` on.
  void read_bytes(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const;
  Tensor read(std::string_view name) const;

private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// All tensors of a file, and its metadata when asked for.
TensorMap load_safetensors(const std::filesystem::path& path, Metadata* metadata = nullptr);
/// Evaluates the tensors and writes them, larger element types first and then by name. Equal
/// content gives equal bytes.
void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata = {});

/// Writes a safetensors file tensor by tensor: names, dtypes and shapes are given first, values
/// later and in any order, so that one of them at a time is in memory. The file has the bytes that
/// save_safetensors() gives it. Without commit() nothing changes at the path.
class SafetensorsWriter {
public:
  /// Places (begin, end) in `tensors` are not read. Error(Value) for a name that is given twice or
  /// is "__metadata__"; Error(File) naming path and byte, here and below, for what cannot be
  /// written.
  SafetensorsWriter(const std::filesystem::path& path, std::vector<TensorInfo> tensors,
                    const Metadata& metadata = {});
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&&) noexcept;

  /// In the order of the file. A pipe takes them in this order only.
  const std::vector<TensorInfo>& tensors() const noexcept;
  /// Computes a value and writes it. Error(Value) for a name that was not given or is written
  /// already, Error(DType) and Error(Shape) for another dtype and shape than were given.
  void write(std::string_view name, const Tensor& value);
  /// Error(Value) where a tensor is missing.
  void commit();

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// NumPy's array format, versions 1 to 3, either byte order, C or Fortran order. Arrays of records
/// and objects are refused.
Tensor load_npy(const std::filesystem::path& path);
/// Version 1, little-endian, C order. bf16 has no NPY name: Error(DType).
void save_npy(const std::filesystem::path& path, const Tensor& tensor);

/// How much a compressed file may hold, whatever it says of itself.
inline constexpr std::uint64_t kMostUnpackedBytes = std::uint64_t{1} << 32;

/// The arrays of an NPZ file (a ZIP archive of NPY files), by name without ".npy"; stored or
/// deflated, checksums verified. Error(File) for what is damaged, encrypted, packed in other ways,
/// given twice or no NPY file, and when all together unpack to more than `most_bytes`.
TensorMap load_npz(const std::filesystem::path& path,
                   std::uint64_t most_bytes = kMostUnpackedBytes);
/// As numpy.savez, or numpy.savez_compressed when `compressed`. Equal content gives equal bytes.
/// Error(Value) for names that are empty or longer than 60000 bytes, and for 4 GiB and more.
void save_npz(const std::filesystem::path& path, const TensorMap& tensors, bool compressed = false);

/// The format of the MNIST files: big-endian, u8, i8, i16, i32, f32 or f64; plain or gzip.
Tensor load_idx(const std::filesystem::path& path, std::uint64_t most_bytes = kMostUnpackedBytes);

/// The content of a gzip file (one or several members, checksums verified); Error(File) when it
/// holds more than `most_bytes`.
std::vector<std::byte> read_gzip(const std::filesystem::path& path,
                                 std::uint64_t most_bytes = kMostUnpackedBytes);

} // namespace egret::io

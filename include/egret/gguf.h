// GGUF files (version 3; 2 is read too): metadata and tensors of GGML, quantized ones among them.
// As with the other formats of io.h, files are taken to be hostile and refused with Error(File)
// that names the file, the offset, the tensor or key and the reason.
#pragma once

#include "egret/functional/packed.h"
#include "egret/io.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace egret::io {

/// How a tensor's elements stand in a GGUF file, by GGML's numbers: floats, or blocks of quantized
/// values along the innermost dim.
enum class GgmlType : std::uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30
};

/// A row of the table of GGML types.
struct GgmlTypeInfo {
  GgmlType type;
  const char* name;
  std::int64_t values; ///< of a block
  std::int64_t bytes;  ///< of a block
};
/// Of a number as files have it; nothing for a type that egret does not read.
std::optional<GgmlTypeInfo> ggml_type(std::uint32_t number);
const GgmlTypeInfo& info_of(GgmlType type);

/// The values of blocks: u8 [..., n · bytes of a block] to f32 [..., n · values of a block]. A
/// program of shifts, masks and products over the bytes, so that it runs on any device and may fuse
/// into what reads it. (For F16 and BF16 the bytes are reinterpreted.)
Tensor dequantized(GgmlType type, const Tensor& bytes);

/// The same values of Q8_0 and Q4_0 as integers with scales in f16, in as many bytes, that
/// dequantize() takes. Error(Unsupported) for other types.
Quantized packed_blocks(GgmlType type, const Tensor& bytes);

/// A tensor as small integers along its last axis, n in all, with a scale and perhaps a minimum for
/// each group of neighbours, which count units of each block of 256:
/// value = unit count (integer - offset) - low_unit low_count.
struct BlockQuantized {
  Tensor packed; ///< u8 [..., n bits / 8], as pack_bits gives
  int bits = 4;  ///< 2, 4 or 8
  int offset = 0;
  std::int64_t group = 32;
  Tensor unit;  ///< f16 [..., n / 256]
  Tensor count; ///< u8 or i8 [..., n / group]
  std::optional<Tensor> low_unit, low_count;

  template <class V>
  void visit(V& v) {
    v("packed", packed);
    v("bits", bits);
    v("offset", offset);
    v("group", group);
    v("unit", unit);
    v("count", count);
    v("low_unit", low_unit);
    v("low_count", low_count);
  }
};

/// The values of Q2_K to Q6_K in that form; integers of 3 bits take 4, of 5 and 6 bits 8.
/// Error(Unsupported) for other types.
BlockQuantized packed_k_blocks(GgmlType type, const Tensor& bytes);
/// The values f32 [..., n], which are those of dequantized().
Tensor dequantize(const BlockQuantized& blocks);

/// The reverse for F32, F16, BF16, Q8_0 (whose scale is a block's largest magnitude over 127, in
/// f16), Q4_0 (whose value of the largest magnitude becomes -8) and Q4_K (whose 32 values of a
/// scale span from the least, or 0, to the largest, or 0): floats [..., n · values of a block] to
/// u8. Error(Unsupported) for other types, Error(Shape) unless the last axis consists of whole
/// blocks.
Tensor quantized_blocks(GgmlType type, const Tensor& values);

/// A value of the metadata. Integers of all sizes are i64 (or u64 where they do not fit).
using GgufValue =
    std::variant<bool, std::int64_t, std::uint64_t, double, std::string, std::vector<bool>,
                 std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;
using GgufMetadata = std::map<std::string, GgufValue, std::less<>>;

/// A tensor's place in a GGUF file.
struct GgufTensorInfo {
  std::string name;
  GgmlType type = GgmlType::F32;
  std::vector<std::int64_t> shape;  ///< outermost first (files list it innermost first)
  std::uint64_t begin = 0, end = 0; ///< bytes, counted from the start of the data
};

/// An open GGUF file: metadata and the list of tensors are read and checked, tensors are read when
/// they are asked for.
class GgufFile {
public:
  explicit GgufFile(const std::filesystem::path& path);
  ~GgufFile();
  GgufFile(GgufFile&&) noexcept;

  const GgufMetadata& metadata() const noexcept;
  const std::vector<GgufTensorInfo>& tensors() const noexcept; ///< in the order of the file
  bool contains(std::string_view name) const noexcept;
  const GgufTensorInfo& info(std::string_view name) const; ///< Error(Value) for an unknown name
  /// The bytes as they stand, u8 [outer dims ..., bytes of a row].
  Tensor read_bytes(std::string_view name) const;
  /// The values: f32, f16 and bf16 as they are, quantized ones as f32.
  Tensor read(std::string_view name) const;

private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// Writes version 3, little-endian, data aligned to 32 bytes: metadata and the list of tensors
/// first, then one tensor after the other, so that a model need not be in memory as a whole.
/// Integers of the metadata are written as u32 where they fit, else as i32, i64 or u64. Equal
/// content gives equal bytes. The file appears when commit() has written all of it.
class GgufWriter {
public:
  /// Names, shapes and types in order, of types that quantized_blocks() makes; offsets are not
  /// read. Error(Value) for names given twice, empty or longer than 63 bytes, and for 0 or more
  /// than 4 dims; Error(Shape) unless rows consist of whole blocks and for a size that no file has;
  /// Error(File) where nothing can be written.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             std::vector<GgufTensorInfo> tensors);
  ~GgufWriter();
  GgufWriter(const GgufWriter&) = delete;
  GgufWriter& operator=(const GgufWriter&) = delete;

  /// Of the next tensor; Error(Shape) for another shape. Returns the blocks that it wrote.
  Tensor write(const Tensor& values);
  void commit(); ///< Error(Value) unless all tensors were written

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A tensor to be written, and as what.
struct GgufTensor {
  std::string name;
  Tensor values;
  GgmlType type = GgmlType::F32; ///< one that quantized_blocks() makes
};

/// All of it at once, in the order given. Errors as GgufWriter.
void save_gguf(const std::filesystem::path& path, const GgufMetadata& metadata,
               std::span<const GgufTensor> tensors);

} // namespace egret::io

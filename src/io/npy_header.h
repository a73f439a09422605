// The header of an NPY file: checked text <-> what the array is. No tensor data here.
#pragma once

#include "egret/dtype.h"
#include "io/file.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::io {

struct NpyHeader {
  DType dtype = DType::F32;
  bool big_endian = false;
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::uint64_t data_start = 0; ///< offset in the file
};

/// Reads and checks magic, version and header; the data must be exactly what the shape needs.
/// Throws Error(File).
NpyHeader read_npy_header(const InputFile& file);

/// The first bytes of a version 1 file, a multiple of 64. Throws Error(DType) for a type that NumPy
/// has no code for.
std::string npy_header_text(DType dtype, const std::vector<std::int64_t>& shape);

} // namespace egret::io

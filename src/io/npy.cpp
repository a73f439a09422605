#include "io/npy.h"
#include "egret/io.h"
#include "io/byte_order.h"
#include "io/file.h"
#include "io/npy_header.h"
#include "io/tensor_bytes.h"

#include <algorithm>

namespace egret::io {

Tensor read_npy(const InputFile& file) {
  NpyHeader header = read_npy_header(file);
  // Fortran order is C order of the reversed dims.
  if (header.fortran_order)
    std::reverse(header.shape.begin(), header.shape.end());
  Tensor tensor = tensor_filled_by(header.dtype, header.shape, [&](std::span<std::byte> out) {
    file.read_at(header.data_start, out);
    if (header.big_endian)
      reverse_bytes(out, size_of(header.dtype));
  });
  if (!header.fortran_order)
    return tensor;
  std::vector<std::int64_t> axes(header.shape.size());
  for (std::size_t i = 0; i < axes.size(); ++i)
    axes[i] = static_cast<std::int64_t>(axes.size() - 1 - i);
  return tensor.permute(axes);
}

Tensor load_npy(const std::filesystem::path& path) {
  return read_npy(InputFile("npy", path));
}

void save_npy(const std::filesystem::path& path, const Tensor& tensor) {
  std::string header = npy_header_text(tensor.dtype(), tensor.sizes());
  std::vector<std::byte> bytes = tensor.to_bytes();
  OutputFile file("npy", path);
  file.write(header);
  file.write(bytes);
  file.commit();
}

} // namespace egret::io

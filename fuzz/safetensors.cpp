// Any bytes as a safetensors header: an Error(File), or a header whose text parses to the same
// header.
#include "io/safetensors_header.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  if (size < 2)
    return 0;
  std::uint64_t data_bytes = data[0] | data[1] << 8U;
  std::string_view json(reinterpret_cast<const char*>(data) + 2, size - 2);
  try {
    auto header = io::parse_safetensors_header(json, data_bytes, "fuzz");
    std::uint64_t sum = 0;
    for (const auto& info : header.tensors)
      sum += info.end - info.begin;
    if (sum != data_bytes)
      std::abort();
    auto again = io::parse_safetensors_header(io::safetensors_header_text(header).substr(8),
                                              data_bytes, "fuzz");
    if (again.metadata != header.metadata || again.tensors.size() != header.tensors.size())
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File)
      std::abort();
  }
  return 0;
}

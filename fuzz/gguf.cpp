// Any bytes as a GGUF file of a language model: an Error(File), or tensors that lie in the file
// apart from each other; then its metadata as a configuration: an Error that says File or
// Unsupported, or sizes within their ranges.
#include "egret/error.h"
#include "io/gguf_header.h"
#include "language_config.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  std::vector<std::byte> bytes(size);
  if (size > 0)
    std::memcpy(bytes.data(), data, size);
  try {
    const io::GgufHeader header = io::read_gguf_header({"GGUF", "fuzz", std::move(bytes)});
    std::uint64_t sum = 0;
    for (const io::GgufTensorInfo& tensor : header.tensors)
      sum += tensor.end - tensor.begin;
    if (!header.tensors.empty() && (header.data_start > size || sum > size - header.data_start))
      std::abort();
    const auto name = header.metadata.find("general.architecture");
    if (name == header.metadata.end() || !std::holds_alternative<std::string>(name->second))
      return 0;
    const models::language::Architecture& row =
        models::language::architecture_of(std::get<std::string>(name->second), true, "fuzz");
    models::Keys keys(
        models::language::config_of_gguf(header.metadata, header.tensors, row, "fuzz", {}), "fuzz");
    fuzz::check_config(keys, row);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File && error.kind() != ErrorKind::Unsupported)
      std::abort();
  }
  return 0;
}

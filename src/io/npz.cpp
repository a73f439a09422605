// NPZ: NPY files in a ZIP archive.
#include "egret/io.h"
#include "io/npy.h"
#include "io/npy_header.h"
#include "io/zip.h"

namespace egret::io {

namespace {

constexpr std::string_view kEnding = ".npy";

} // namespace

TensorMap load_npz(const std::filesystem::path& path, std::uint64_t most_bytes) {
  const InputFile file("npz", path);
  const std::vector<ZipMember> members = zip_members(file);
  std::uint64_t total = 0;
  for (const ZipMember& member : members) {
    if (!member.name.ends_with(kEnding))
      file.fail(member.header, "member '{}' is no NPY file", member.name);
    if (member.unpacked > most_bytes - total)
      file.fail(member.header, "the members up to '{}' hold more than the limit of {} bytes",
                member.name, most_bytes);
    total += member.unpacked;
  }
  TensorMap tensors;
  for (const ZipMember& member : members)
    tensors.emplace(member.name.substr(0, member.name.size() - kEnding.size()),
                    read_npy(InputFile(
                        "npz", fmt::format("{}, member {}", path.string(), printable(member.name)),
                        unzip(file, member))));
  return tensors;
}

void save_npz(const std::filesystem::path& path, const TensorMap& tensors, bool compressed) {
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    npy_header_text(tensor.dtype(), tensor.sizes()); // refuses a dtype before anything is written
    if (name.empty())
      fail(ErrorKind::Value, "save_npz: a tensor without a name");
    values.push_back(tensor);
  }
  eval(values);
  OutputFile file("npz", path);
  ZipWriter zip(file);
  for (const auto& [name, tensor] : tensors) {
    const std::string header = npy_header_text(tensor.dtype(), tensor.sizes());
    const std::vector<std::byte> data = tensor.to_bytes();
    const auto head = std::as_bytes(std::span(header));
    std::vector<std::byte> content(head.begin(), head.end());
    content.insert(content.end(), data.begin(), data.end());
    zip.add(name + std::string(kEnding), content, compressed);
  }
  zip.finish();
  file.commit();
}

} // namespace egret::io

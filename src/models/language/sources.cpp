#include "models/language/sources.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/printable.h"

#include <array>

namespace egret::models::language {

namespace {

constexpr std::array<int, 2> kBits = {4, 8};

} // namespace

std::string PackedName::packed(const std::string& name, int bits) {
  return fmt::format("{}.int{}", name, bits);
}

FolderSource::FolderSource(const std::filesystem::path& folder)
    : folder_(folder), tensors_(folder) {
  for (const std::string& name : tensors_.names())
    for (const int bits : kBits)
      if (const std::string end = PackedName::packed("", bits); name.ends_with(end))
        add_packed(name.substr(0, name.size() - end.size()), bits);
}

void FolderSource::add_packed(const std::string& name, int bits) {
  Packed packed{PackedName::packed(name, bits), PackedName::scale(name), {}, bits, 0};
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::File, "{}: tensor '{}' {}", tensors_.path_of(packed.integers).string(),
         printable(packed.integers), why);
  };
  if (tensors_.contains(name) || packed_.contains(name))
    refuse("is there in another form too");
  if (!tensors_.contains(packed.scale))
    refuse(fmt::format("has no scales: '{}' is missing", printable(packed.scale)));
  const io::TensorInfo &integers = tensors_.info(packed.integers),
                       &scale = tensors_.info(packed.scale);
  packed.shape = integers.shape;
  if (integers.dtype != DType::U8 || !is_float(scale.dtype) || packed.shape.size() < 2)
    refuse("is no matrix of u8 with scales in floats");
  packed.shape.back() *= 8 / bits;
  std::vector<std::int64_t> grouped = packed.shape;
  const std::int64_t in = grouped.back(), groups = scale.shape.empty() ? 0 : scale.shape.back();
  grouped.back() = groups;
  if (groups < 1 || in % groups != 0 || in / groups % (8 / bits) != 0 || grouped != scale.shape)
    refuse(fmt::format("is [{}], its scales are [{}]: these are no groups of it",
                       fmt::join(integers.shape, ","), fmt::join(scale.shape, ",")));
  packed.group = in / groups;
  packed_.emplace(name, std::move(packed));
}

std::string FolderSource::path_of(const std::string& name) const {
  const auto at = packed_.find(name);
  return tensors_.path_of(at == packed_.end() ? name : at->second.integers).string();
}

std::vector<std::string> FolderSource::names() const {
  std::vector<std::string> names = tensors_.names();
  for (const auto& [name, packed] : packed_) {
    std::erase(names, packed.integers);
    std::erase(names, packed.scale);
    names.push_back(name);
  }
  return names;
}

bool FolderSource::contains(const std::string& name) const {
  return packed_.contains(name) || tensors_.contains(name);
}

std::vector<std::int64_t> FolderSource::shape(const std::string& name) const {
  const auto at = packed_.find(name);
  return at == packed_.end() ? tensors_.info(name).shape : at->second.shape;
}

Tensor FolderSource::read(const std::string& name) const {
  if (!packed(name))
    return tensors_.read(name);
  const Quantized q = read_packed(name);
  return dequantize({q.packed, q.scale.to(DType::F32), q.bits, q.group});
}

Quantized FolderSource::read_packed(const std::string& name) const {
  const Packed& packed = packed_.at(name);
  return {tensors_.read(packed.integers), tensors_.read(packed.scale), packed.bits, packed.group};
}

DType FolderSource::dtype(const std::string& name) const {
  return packed(name) ? DType::U8 : tensors_.info(name).dtype;
}

std::vector<std::string> MemorySource::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_)
    names.push_back(name);
  return names;
}

std::vector<std::int64_t> MemorySource::shape(const std::string& name) const {
  std::vector<std::int64_t> shape;
  for (const Expr& dim : tensors_.at(name).shape())
    shape.push_back(dim.value());
  return shape;
}

Quantized MemorySource::read_packed(const std::string& name) const {
  ensure(false, "tensor '{}' is not packed", name);
  return {};
}

std::vector<std::string> GgufSource::names() const {
  std::vector<std::string> names;
  for (const auto& info : file_.tensors())
    names.push_back(info.name);
  return names;
}

bool GgufSource::packed(const std::string& name) const {
  const io::GgmlType type = file_.info(name).type;
  return type == io::GgmlType::Q8_0 || type == io::GgmlType::Q4_0;
}

} // namespace egret::models::language

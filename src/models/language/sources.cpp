#include "models/language/sources.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/printable.h"

#include <array>
#include <optional>

namespace egret::models::language {

namespace {

constexpr std::array<int, 2> kBits = {4, 8};

/// Bits of a value in memory, with its share of scales; nothing for types that become floats.
std::optional<double> packed_form(io::GgmlType type) {
  switch (type) {
  case io::GgmlType::Q8_0:
    return 8 + 16.0 / 32;
  case io::GgmlType::Q4_0:
    return 4 + 16.0 / 32;
  case io::GgmlType::Q2_K:
    return 2 + 2 * (8.0 / 16 + 16.0 / 256);
  case io::GgmlType::Q3_K:
    return 4 + 8.0 / 16 + 16.0 / 256;
  case io::GgmlType::Q4_K:
    return 4 + 2 * (8.0 / 32 + 16.0 / 256);
  case io::GgmlType::Q5_K:
    return 8 + 2 * (8.0 / 32 + 16.0 / 256);
  case io::GgmlType::Q6_K:
    return 8 + 8.0 / 16 + 16.0 / 256;
  default:
    return {};
  }
}

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
  const Quantized q = integers(name);
  return dequantize({q.packed, q.scale.to(DType::F32), q.bits, q.group});
}

Quantized FolderSource::integers(const std::string& name) const {
  const Packed& packed = packed_.at(name);
  return {tensors_.read(packed.integers), tensors_.read(packed.scale), packed.bits, packed.group};
}

std::int64_t FolderSource::packed_bytes(const std::string& name) const {
  const Packed& packed = packed_.at(name);
  const auto bytes = [&](const std::string& tensor) {
    const io::TensorInfo& info = tensors_.info(tensor);
    return static_cast<std::int64_t>(info.end - info.begin);
  };
  return bytes(packed.integers) + bytes(packed.scale);
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

Matrix MemorySource::read_packed(const std::string& name) const {
  ensure(false, "tensor '{}' is not packed", name);
  return {};
}

std::vector<std::string> GgufSource::names() const {
  std::vector<std::string> names;
  for (const auto& info : file_.tensors())
    names.push_back(info.name);
  return names;
}

DType GgufSource::dtype(const std::string& name) const {
  switch (file_.info(name).type) {
  case io::GgmlType::F16:
    return DType::F16;
  case io::GgmlType::BF16:
    return DType::BF16;
  default:
    return DType::F32;
  }
}

Matrix GgufSource::read_packed(const std::string& name) const {
  const io::GgmlType type = file_.info(name).type;
  const Tensor bytes = file_.read_bytes(name);
  if (type == io::GgmlType::Q8_0 || type == io::GgmlType::Q4_0)
    return io::packed_blocks(type, bytes);
  return io::packed_k_blocks(type, bytes);
}

std::int64_t GgufSource::packed_bytes(const std::string& name) const {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape(name))
    count *= dim;
  return static_cast<std::int64_t>(static_cast<double>(count) *
                                   packed_form(file_.info(name).type).value_or(32) / 8);
}

bool GgufSource::packed(const std::string& name) const {
  return packed_form(file_.info(name).type).has_value();
}

} // namespace egret::models::language

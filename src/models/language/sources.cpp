#include "models/language/sources.h"

#include "egret/functional.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <optional>

namespace egret::models::language {

namespace {

constexpr std::array kForms = {FormRow{WeightForm::Int8, "int8", 8, false, DType::U8},
                               FormRow{WeightForm::Int4, "int4", 4, false, DType::U8},
                               FormRow{WeightForm::Uint4, "uint4", 4, true, DType::U8},
                               FormRow{WeightForm::F8E4M3, "f8e4m3", 8, false, DType::F8E4M3}};

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

std::span<const FormRow> weight_forms() {
  return kForms;
}
const FormRow& row_of(WeightForm form) {
  return *std::ranges::find(kForms, form, &FormRow::form);
}
std::string scale_name(const std::string& matrix) {
  return matrix + ".scale";
}
std::string zero_name(const std::string& matrix) {
  return matrix + ".zero";
}

Tensor TensorSource::read_stacked(const std::vector<std::string>& names, DType dtype) const {
  std::vector<Tensor> each;
  for (const std::string& name : names)
    each.push_back(read(name).to(dtype));
  return stack(each);
}

Matrix TensorSource::read_packed_stacked(const std::vector<std::string>& names) const {
  ensure(false, "tensor '{}' is packed and one of several", names.at(0));
  return {};
}

FolderSource::FolderSource(const std::filesystem::path& folder)
    : folder_(folder), tensors_(folder) {
  for (const std::string& name : tensors_.names())
    for (const FormRow& row : kForms)
      if (const std::string end = std::string(".") + row.name; name.ends_with(end))
        add_packed(name.substr(0, name.size() - end.size()), row);
}

void FolderSource::add_packed(const std::string& name, const FormRow& row) {
  Packed packed{fmt::format("{}.{}", name, row.name), scale_name(name), {}, {}, row.bits, 0};
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::File, "{}: tensor '{}' {}", tensors_.path_of(packed.values).string(),
         printable(packed.values), why);
  };
  if (tensors_.contains(name) || packed_.contains(name))
    refuse("is there in another form too");
  if (!tensors_.contains(packed.scale))
    refuse(fmt::format("has no scales: '{}' is missing", printable(packed.scale)));
  const io::TensorInfo &values = tensors_.info(packed.values), &scale = tensors_.info(packed.scale);
  packed.shape = values.shape;
  if (values.dtype != row.dtype || !is_float(scale.dtype) || packed.shape.size() < 2)
    refuse(fmt::format("is no matrix of {} with scales in floats", egret::name_of(row.dtype)));
  const int in_byte = 8 / row.bits;
  packed.shape.back() *= in_byte;
  std::vector<std::int64_t> grouped = packed.shape;
  const std::int64_t in = grouped.back(), groups = scale.shape.empty() ? 0 : scale.shape.back();
  grouped.back() = groups;
  if (groups < 1 || in % groups != 0 || in / groups % in_byte != 0 || grouped != scale.shape)
    refuse(fmt::format("is [{}], its scales are [{}]: these are no groups of it",
                       fmt::join(values.shape, ","), fmt::join(scale.shape, ",")));
  if (row.zero_points) {
    packed.zero = zero_name(name);
    if (!tensors_.contains(*packed.zero))
      refuse(fmt::format("has no zero points: '{}' is missing", printable(*packed.zero)));
    if (const io::TensorInfo& zero = tensors_.info(*packed.zero);
        zero.dtype != DType::U8 || zero.shape != scale.shape)
      refuse(fmt::format("has zero points in {} [{}]; u8 [{}] is needed",
                         egret::name_of(zero.dtype), fmt::join(zero.shape, ","),
                         fmt::join(scale.shape, ",")));
  }
  packed.group = in / groups;
  packed_.emplace(name, std::move(packed));
}

std::string FolderSource::path_of(const std::string& name) const {
  const auto at = packed_.find(name);
  return tensors_.path_of(at == packed_.end() ? name : at->second.values).string();
}

std::vector<std::string> FolderSource::names() const {
  std::vector<std::string> names = tensors_.names();
  for (const auto& [name, packed] : packed_) {
    std::erase(names, packed.values);
    std::erase(names, packed.scale);
    if (packed.zero)
      std::erase(names, *packed.zero);
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
  return dense(grouped({name}, false), DType::F32);
}

Grouped FolderSource::grouped(const std::vector<std::string>& names, bool stacked) const {
  std::vector<std::string> values, scales, zeros;
  for (const std::string& name : names) {
    const Packed& packed = packed_.at(name);
    values.push_back(packed.values);
    scales.push_back(packed.scale);
    if (packed.zero)
      zeros.push_back(*packed.zero);
  }
  const auto read = [&](const std::vector<std::string>& all) {
    return stacked ? tensors_.read_stacked(all) : tensors_.read(all[0]);
  };
  const Packed& first = packed_.at(names[0]);
  return {read(values), read(scales), zeros.empty() ? std::nullopt : std::optional(read(zeros)),
          first.bits, first.group};
}

PackedForm FolderSource::form(const std::string& name) const {
  const auto at = packed_.find(name);
  if (at == packed_.end())
    return {};
  const Packed& packed = at->second;
  return {tensors_.info(packed.values).dtype, packed.bits, packed.group, packed.zero.has_value()};
}

Tensor FolderSource::read_stacked(const std::vector<std::string>& names, DType dtype) const {
  const auto alike = [&](const std::string& name) {
    return !packed(name) && tensors_.info(name).dtype == tensors_.info(names[0]).dtype;
  };
  if (std::ranges::all_of(names, alike))
    return tensors_.read_stacked(names).to(dtype);
  return TensorSource::read_stacked(names, dtype);
}

std::int64_t FolderSource::packed_bytes(const std::string& name) const {
  const Packed& packed = packed_.at(name);
  const auto bytes = [&](const std::string& tensor) {
    const io::TensorInfo& info = tensors_.info(tensor);
    return static_cast<std::int64_t>(info.end - info.begin);
  };
  return bytes(packed.values) + bytes(packed.scale) + (packed.zero ? bytes(*packed.zero) : 0);
}

DType FolderSource::dtype(const std::string& name) const {
  const auto at = packed_.find(name);
  return tensors_.info(at == packed_.end() ? name : at->second.values).dtype;
}

DType FolderSource::scale_dtype(const std::string& name) const {
  return tensors_.info(packed_.at(name).scale).dtype;
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
  if (type == io::GgmlType::Q8_0 || type == io::GgmlType::Q4_0) {
    const Quantized q = io::packed_blocks(type, bytes);
    return Grouped{q.packed, q.scale, {}, q.bits, q.group};
  }
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

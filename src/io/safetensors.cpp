#include "egret/borders.h"
#include "egret/io.h"
#include "io/file.h"
#include "io/safetensors_header.h"
#include "io/tensor_bytes.h"
#include "tensor/borders.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace egret::io {

namespace {

constexpr std::uint64_t kMostHeaderBytes = 100'000'000; // as the format's own reader
constexpr std::size_t kWidest = 64;                     // no element is wider

} // namespace

struct SafetensorsFile::Impl {
  explicit Impl(const std::filesystem::path& path) : file("safetensors", path) {
    std::array<std::byte, 8> length_bytes = {};
    file.read_at(0, length_bytes);
    std::uint64_t length = 0;
    for (std::size_t i = 8; i-- > 0;)
      length = length << 8 | std::to_integer<std::uint64_t>(length_bytes[i]);
    if (length > kMostHeaderBytes)
      file.fail(0,
                "no safetensors file, or a damaged one: the first 8 bytes are those of a header of "
                "{} bytes, and the limit is {}",
                length, kMostHeaderBytes);
    if (length > file.size() - 8)
      file.fail(0, "a header of {} bytes in a file of {}", length, file.size());
    std::string text(length, '\0');
    file.read_at(8, std::as_writable_bytes(std::span(text)));
    data_start = 8 + length;
    header = parse_safetensors_header(text, file.size() - data_start, path);
    for (std::size_t i = 0; i < header.tensors.size(); ++i)
      places.emplace(header.tensors[i].name, i);
  }

  InputFile file;
  std::uint64_t data_start = 0;
  SafetensorsHeader header;
  std::map<std::string, std::size_t, std::less<>> places;
};

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path)
    : impl_(std::make_unique<const Impl>(path)) {}
SafetensorsFile::~SafetensorsFile() = default;
SafetensorsFile::SafetensorsFile(SafetensorsFile&&) noexcept = default;

const std::vector<TensorInfo>& SafetensorsFile::tensors() const noexcept {
  return impl_->header.tensors;
}
const Metadata& SafetensorsFile::metadata() const noexcept {
  return impl_->header.metadata;
}
bool SafetensorsFile::contains(std::string_view name) const noexcept {
  return impl_->places.contains(name);
}

const TensorInfo& SafetensorsFile::info(std::string_view name) const {
  auto found = impl_->places.find(name);
  if (found != impl_->places.end())
    return impl_->header.tensors[found->second];
  std::vector<std::string> some;
  for (const auto& [other, place] : impl_->places)
    if (some.size() < 5)
      some.push_back(other);
  fail(ErrorKind::Value, "safetensors: {}: no tensor '{}' among {} ({}{})",
       impl_->file.path().string(), name, impl_->places.size(), fmt::join(some, ", "),
       impl_->places.size() > some.size() ? ", ..." : "");
}

void SafetensorsFile::read_bytes(std::string_view name, std::uint64_t offset,
                                 std::span<std::byte> out) const {
  const TensorInfo& place = info(name);
  if (offset > place.end - place.begin || out.size() > place.end - place.begin - offset)
    fail(ErrorKind::Index, "safetensors: {}: bytes {} to {} of tensor '{}', which has {}",
         impl_->file.path().string(), offset, offset + out.size(), name, place.end - place.begin);
  impl_->file.read_at(impl_->data_start + place.begin + offset, out);
}

Tensor SafetensorsFile::read(std::string_view name) const {
  const TensorInfo& place = info(name);
  return tensor_read_by(place.dtype, place.shape,
                        [&](std::uint64_t offset, std::span<std::byte> out) {
                          impl_->file.read_at(impl_->data_start + place.begin + offset, out);
                        });
}

TensorMap load_safetensors(const std::filesystem::path& path, Metadata* metadata) {
  SafetensorsFile file(path);
  TensorMap tensors;
  for (const auto& info : file.tensors())
    tensors.emplace(info.name, file.read(info.name));
  if (metadata != nullptr)
    *metadata = file.metadata();
  return tensors;
}

struct SafetensorsWriter::Impl {
  Impl(const std::filesystem::path& path, SafetensorsHeader laid_out)
      : file("safetensors", path), header(std::move(laid_out)), written(header.tensors.size()) {
    const std::string text = safetensors_header_text(header);
    file.write(text);
    data_start = text.size();
    for (std::size_t i = 0; i < header.tensors.size(); ++i)
      places.emplace(header.tensors[i].name, i);
  }

  OutputFile file;
  SafetensorsHeader header;
  std::vector<bool> written;
  std::uint64_t data_start = 0;
  std::map<std::string, std::size_t, std::less<>> places;
};

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path,
                                     std::vector<TensorInfo> tensors, const Metadata& metadata) {
  // Wide elements first, so that every tensor starts at a multiple of its element size.
  std::ranges::sort(tensors, {}, [](const TensorInfo& info) {
    return std::pair<std::size_t, const std::string&>(kWidest - size_of(info.dtype), info.name);
  });
  std::uint64_t end = 0;
  std::set<std::string_view> names;
  for (TensorInfo& info : tensors) {
    if (info.name == "__metadata__")
      fail(ErrorKind::Value, "save_safetensors: a tensor cannot be named '{}'", info.name);
    if (!names.insert(info.name).second)
      fail(ErrorKind::Value, "save_safetensors: tensor '{}' is given twice", printable(info.name));
    info.begin = end;
    info.end = end += bytes_of(info.dtype, info.shape);
  }
  impl_ = std::make_unique<Impl>(path, SafetensorsHeader{std::move(tensors), metadata});
}
SafetensorsWriter::~SafetensorsWriter() = default;
SafetensorsWriter::SafetensorsWriter(SafetensorsWriter&&) noexcept = default;

const std::vector<TensorInfo>& SafetensorsWriter::tensors() const noexcept {
  return impl_->header.tensors;
}

void SafetensorsWriter::write(std::string_view name, const Tensor& value) {
  const auto at = impl_->places.find(name);
  if (at == impl_->places.end())
    fail(ErrorKind::Value, "SafetensorsWriter: tensor '{}' was not given before", printable(name));
  const TensorInfo& info = impl_->header.tensors[at->second];
  if (impl_->written[at->second])
    fail(ErrorKind::Value, "SafetensorsWriter: tensor '{}' is written already", printable(name));
  if (value.dtype() != info.dtype)
    fail(ErrorKind::DType, "SafetensorsWriter: tensor '{}' is {}, it was given as {}",
         printable(name), name_of(value.dtype()), name_of(info.dtype));
  if (value.sizes() != info.shape)
    fail(ErrorKind::Shape, "SafetensorsWriter: tensor '{}' is [{}], it was given as [{}]",
         printable(name), fmt::join(value.sizes(), ","), fmt::join(info.shape, ","));
  const runtime::StoragePtr storage = detail::computed(value, "SafetensorsWriter");
  if (storage->device().host_memory())
    impl_->file.write_at(impl_->data_start + info.begin, view_bytes(value).span());
  else
    impl_->file.write_at(impl_->data_start + info.begin, value.to_bytes());
  impl_->written[at->second] = true;
}

void SafetensorsWriter::commit() {
  const auto missing = std::ranges::find(impl_->written, false);
  if (missing != impl_->written.end())
    fail(ErrorKind::Value, "SafetensorsWriter: tensor '{}' is not written yet",
         printable(impl_->header.tensors[static_cast<std::size_t>(missing - impl_->written.begin())]
                       .name));
  impl_->file.commit();
}

void save_safetensors(const std::filesystem::path& path, const TensorMap& tensors,
                      const Metadata& metadata) {
  std::vector<TensorInfo> infos;
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : tensors) {
    infos.push_back({name, tensor.dtype(), tensor.sizes(), 0, 0});
    values.push_back(tensor);
  }
  eval(values); // in one plan, and before anything is written
  SafetensorsWriter writer(path, std::move(infos), metadata);
  for (const TensorInfo& info : writer.tensors())
    writer.write(info.name, tensors.at(info.name));
  writer.commit();
}

} // namespace egret::io

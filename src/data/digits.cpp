#include "egret/data.h"
#include "egret/functional.h"
#include "egret/io.h"
#include "support/fail.h"
#include "support/path_status.h"

namespace egret::data {

namespace {

std::filesystem::path plain_or_gz(const std::filesystem::path& folder, const std::string& name) {
  for (const char* ending : {"", ".gz"})
    if (auto path = folder / (name + ending); path_exists(path))
      return path;
  fail(ErrorKind::File, "digits: neither {0} nor {0}.gz is in {1}", name, folder.string());
}

} // namespace

Digits load_digits(const std::filesystem::path& folder, std::string_view prefix) {
  auto images_path = plain_or_gz(folder, fmt::format("{}-images-idx3-ubyte", prefix));
  auto labels_path = plain_or_gz(folder, fmt::format("{}-labels-idx1-ubyte", prefix));
  Tensor images = io::load_idx(images_path);
  Tensor labels = io::load_idx(labels_path);
  auto shape = images.sizes();
  if (images.dtype() != DType::U8 || shape.size() != 3 || shape[1] != 28 || shape[2] != 28)
    fail(ErrorKind::File, "digits: {}: expected u8 [n,28,28], found {} {}", images_path.string(),
         name_of(images.dtype()), to_string(images.shape()));
  if (labels.dtype() != DType::U8 || labels.sizes() != std::vector<std::int64_t>{shape[0]})
    fail(ErrorKind::File, "digits: {}: expected u8 [{}] for as many images, found {} {}",
         labels_path.string(), shape[0], name_of(labels.dtype()), to_string(labels.shape()));
  auto numbers = labels.to_vector<std::uint8_t>();
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i] > 9)
      fail(ErrorKind::File, "digits: {}: label {} is {}", labels_path.string(), i, numbers[i]);
  Digits digits{images.to(DType::F32) / 255.0, labels.to(DType::I64)};
  eval({digits.images, digits.labels});
  return digits;
}

} // namespace egret::data

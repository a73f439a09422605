#include "egret/data.h"

#include "data/random.h"
#include "support/fail.h"

#include <cstring>
#include <numeric>

namespace egret::data {

std::vector<std::int64_t> permutation(std::int64_t n, std::uint64_t seed) {
  if (n < 0)
    fail(ErrorKind::Value, "permutation: of {} elements", n);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t i = order.size(); i > 1; --i)
    std::swap(order[i - 1], order[random_below(seed, i)]);
  return order;
}

Loader::Loader(const std::vector<Tensor>& fields, const LoaderOptions& options)
    : options_(options) {
  if (fields.empty())
    fail(ErrorKind::Value, "Loader: no fields");
  if (options.batch <= 0)
    fail(ErrorKind::Value, "Loader: a batch of {}", options.batch);
  for (const Tensor& field : fields) {
    if (field.rank() == 0)
      fail(ErrorKind::Shape, "Loader: a field of rank 0 has no examples");
    if (field.size(0) != fields[0].size(0))
      fail(ErrorKind::Shape, "Loader: fields with {} and {} examples ({} and {})",
           fields[0].size(0), field.size(0), to_string(fields[0].shape()),
           to_string(field.shape()));
    std::vector<std::int64_t> shape = field.sizes();
    shape.erase(shape.begin());
    std::size_t row_bytes = size_of(field.dtype());
    for (std::int64_t dim : shape)
      row_bytes *= static_cast<std::size_t>(dim);
    fields_.push_back({field.dtype(), std::move(shape), field.to_bytes(), row_bytes});
  }
  examples_ = fields[0].size(0);
}

std::int64_t Loader::batches() const noexcept {
  std::int64_t b = options_.batch;
  return options_.drop_last ? examples_ / b : (examples_ + b - 1) / b;
}

std::vector<std::int64_t> Loader::order(std::int64_t epoch) const {
  if (options_.shuffle) {
    std::uint64_t state = options_.seed;
    std::uint64_t mixed = next_random(state) ^ static_cast<std::uint64_t>(epoch);
    return permutation(examples_, mixed);
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(examples_));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<Tensor> Loader::rows(std::span<const std::int64_t> numbers) const {
  std::vector<Tensor> out;
  for (const Field& field : fields_) {
    std::vector<std::byte> bytes(numbers.size() * field.row_bytes);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      if (numbers[i] < 0 || numbers[i] >= examples_)
        fail(ErrorKind::Index, "Loader: example {} of {}", numbers[i], examples_);
      if (field.row_bytes > 0)
        std::memcpy(bytes.data() + i * field.row_bytes,
                    field.bytes.data() + static_cast<std::size_t>(numbers[i]) * field.row_bytes,
                    field.row_bytes);
    }
    Shape shape(field.shape.begin(), field.shape.end());
    shape.insert(shape.begin(), static_cast<std::int64_t>(numbers.size()));
    out.push_back(from_bytes(field.dtype, shape, bytes));
  }
  return out;
}

std::vector<Tensor> Loader::batch(std::span<const std::int64_t> order, std::int64_t number) const {
  if (number < 0 || number >= batches())
    fail(ErrorKind::Index, "Loader: batch {} of {}", number, batches());
  const auto begin = static_cast<std::size_t>(number * options_.batch);
  const auto length = std::min(static_cast<std::size_t>(options_.batch), order.size() - begin);
  return rows(order.subspan(begin, length));
}

const std::vector<Tensor>& Loader::Epoch::Iterator::operator*() {
  if (rows_.empty())
    rows_ = epoch_->loader_->batch(epoch_->order_, batch_);
  return rows_;
}

Loader::Epoch::Iterator& Loader::Epoch::Iterator::operator++() {
  ++batch_;
  rows_.clear();
  return *this;
}

} // namespace egret::data

#include "egret/prefetch.h"

#include "data/random.h"
#include "support/fail.h"

namespace egret::data {

TextWindows::TextWindows(std::vector<std::int64_t> text, std::int64_t length)
    : text_(std::move(text)), length_(length) {
  if (length < 1 || static_cast<std::int64_t>(text_.size()) <= length)
    fail(
        ErrorKind::Value,
        "TextWindows: a text of {} characters for windows of {}; it must be longer than one window",
        text_.size(), length);
}

TextWindows::Windows TextWindows::at(const std::vector<std::size_t>& starts) const {
  const auto length = static_cast<std::size_t>(length_);
  std::vector<std::int64_t> inputs, targets;
  inputs.reserve(starts.size() * length);
  targets.reserve(starts.size() * length);
  for (std::size_t start : starts) {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(start);
    inputs.insert(inputs.end(), begin, begin + length_);
    targets.insert(targets.end(), begin + 1, begin + 1 + length_);
  }
  const Shape shape = {static_cast<std::int64_t>(starts.size()), length_};
  return {tensor(inputs, shape), tensor(targets, shape)};
}

TextWindows::Windows TextWindows::random(std::int64_t count, std::uint64_t seed) const {
  if (count < 0)
    fail(ErrorKind::Value, "TextWindows: {} windows", count);
  std::vector<std::size_t> starts(static_cast<std::size_t>(count));
  next_random(seed); // seeds that follow one another start apart
  for (std::size_t& start : starts)
    start = random_below(seed, text_.size() - static_cast<std::size_t>(length_));
  return at(starts);
}

std::int64_t TextWindows::in_order() const noexcept {
  return (static_cast<std::int64_t>(text_.size()) - 1) / length_;
}

TextWindows::Windows TextWindows::in_order(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > in_order() || count > in_order() - first)
    fail(ErrorKind::Index, "TextWindows: windows {} to {} of {}", first, first + count, in_order());
  std::vector<std::size_t> starts;
  for (std::int64_t i = first; i < first + count; ++i)
    starts.push_back(static_cast<std::size_t>(i * length_));
  return at(starts);
}

} // namespace egret::data

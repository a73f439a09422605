#include "egret/stream.h"

#include "data/random.h"
#include "support/fail.h"

namespace egret::data {

TextWindows::TextWindows(std::vector<std::int64_t> text, std::int64_t length)
    : text_(std::move(text)), length_(length) {
  if (length < 1 || static_cast<std::int64_t>(text_.size()) <= length)
    fail(ErrorKind::Value,
         "TextWindows: a text of {} characters for pieces of {}; it must be longer than one piece",
         text_.size(), length);
}

TextWindows::Pieces TextWindows::at(const std::vector<std::size_t>& places) const {
  const auto length = static_cast<std::size_t>(length_);
  std::vector<std::int64_t> inputs, targets;
  inputs.reserve(places.size() * length);
  targets.reserve(places.size() * length);
  for (std::size_t place : places) {
    const auto begin = text_.begin() + static_cast<std::ptrdiff_t>(place);
    inputs.insert(inputs.end(), begin, begin + length_);
    targets.insert(targets.end(), begin + 1, begin + 1 + length_);
  }
  const Shape shape = {static_cast<std::int64_t>(places.size()), length_};
  return {tensor(inputs, shape), tensor(targets, shape)};
}

TextWindows::Pieces TextWindows::random(std::int64_t count, std::uint64_t seed) const {
  if (count < 0)
    fail(ErrorKind::Value, "TextWindows: {} pieces", count);
  std::vector<std::size_t> places(static_cast<std::size_t>(count));
  next_random(seed); // seeds that follow one another start apart
  for (std::size_t& place : places)
    place = random_below(seed, text_.size() - static_cast<std::size_t>(length_));
  return at(places);
}

std::int64_t TextWindows::in_order() const noexcept {
  return (static_cast<std::int64_t>(text_.size()) - 1) / length_;
}

TextWindows::Pieces TextWindows::in_order(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0 || first > in_order() || count > in_order() - first)
    fail(ErrorKind::Index, "TextWindows: pieces {} to {} of {}", first, first + count, in_order());
  std::vector<std::size_t> places;
  for (std::int64_t i = first; i < first + count; ++i)
    places.push_back(static_cast<std::size_t>(i * length_));
  return at(places);
}

} // namespace egret::data

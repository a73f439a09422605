#include "serve/stop_strings.h"

#include <algorithm>
#include <utility>

namespace egret::serve {

std::string StopStrings::push(std::string_view text) {
  if (stopped_)
    return {};
  held_ += text;
  std::size_t first = std::string::npos;
  for (const std::string& stop : stops_)
    first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    stopped_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // The longest end of the text that begins one of the strings stays.
  std::size_t keep = 0;
  for (const std::string& stop : stops_)
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n)
      if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n)))
        keep = n;
  std::string certain = held_.substr(0, held_.size() - keep);
  held_.erase(0, certain.size());
  return certain;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

} // namespace egret::serve

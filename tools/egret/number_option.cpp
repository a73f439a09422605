#include "number_option.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <string>

namespace egret::tool {

namespace {

/// The whole of a text as a number; nothing for what is none, or does not fit T.
template <class T>
std::optional<T> number_of(const std::string& text) {
  T value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value)
                                                                  : std::nullopt;
}

template <class Holds>
CLI::Validator finite(std::string wanted, std::string shown, Holds holds) {
  return CLI::Validator(
      [wanted, holds](const std::string& text) -> std::string {
        const auto value = number_of<double>(text);
        return value && std::isfinite(*value) && holds(*value)
                   ? ""
                   : fmt::format("'{}' is not {}", text, wanted);
      },
      std::move(shown));
}

} // namespace

CLI::Validator number_above(double least) {
  return finite(fmt::format("a finite number above {}", least), fmt::format("above {}", least),
                [least](double value) { return value > least; });
}

CLI::Validator number_from(double least) {
  return finite(fmt::format("a finite number from {} on", least), fmt::format("from {} on", least),
                [least](double value) { return value >= least; });
}

CLI::Validator number_within(double least, double most) {
  return finite(fmt::format("a number from {} to {}", least, most),
                fmt::format("{} to {}", least, most),
                [least, most](double value) { return value >= least && value <= most; });
}

CLI::Validator is_seconds() {
  constexpr double kMost = 1e9;
  return finite("a number of seconds above 0", "seconds",
                [](double value) { return value > 0 && value <= kMost; });
}

CLI::Validator whole_within(std::int64_t least, std::int64_t most) {
  return CLI::Validator(
      [least, most](const std::string& text) -> std::string {
        const auto value = number_of<std::int64_t>(text);
        return value && *value >= least && *value <= most
                   ? ""
                   : fmt::format("'{}' is not a whole number from {} to {}", text, least, most);
      },
      fmt::format("{} to {}", least, most));
}

CLI::Validator is_seed() {
  return CLI::Validator(
      [](const std::string& text) -> std::string {
        return number_of<std::uint64_t>(text)
                   ? ""
                   : fmt::format("'{}' is not a whole number from 0 to {}", text, UINT64_MAX);
      },
      "");
}

} // namespace egret::tool

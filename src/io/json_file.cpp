#include "io/json_file.h"

#include "io/file.h"
#include "support/json_reason.h"

namespace egret::io {

namespace {

constexpr std::uint64_t kMostBytes = 64U << 20U;
constexpr int kMostDepth = 64; // what is nested deeper is no file of a model

} // namespace

nlohmann::json read_json_object(const std::filesystem::path& path) {
  const InputFile file("JSON", path);
  if (file.size() > kMostBytes)
    file.fail(0, "{} bytes are more than the limit of {}", file.size(), kMostBytes);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  const auto shallow = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMostDepth)
      file.fail(0, "values are nested more than {} deep", kMostDepth);
    return true;
  };
  if (const std::string reason = zero_byte_reason(text); !reason.empty())
    file.fail(text.find('\0'), "not JSON: {}", reason);
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(text, shallow);
  } catch (const nlohmann::json::parse_error& error) {
    file.fail(error.byte, "not JSON: {}", json_reason(error));
  } catch (const nlohmann::json::exception& error) { // a number beyond f64
    file.fail(0, "not JSON: {}", json_reason(error));
  }
  if (!value.is_object())
    file.fail(0, "not a JSON object");
  return value;
}

} // namespace egret::io

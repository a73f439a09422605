// Measurements as text: CSV and JSON lines.
#include "egret/metrics.h"

#include "io/append_file.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

namespace egret::io {

namespace {

std::optional<std::int64_t> leading_step(std::string_view text) {
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  const bool whole = error == std::errc() && step >= 0 && end != text.data() + text.size() &&
                     (*end == ',' || *end == '}');
  return whole ? std::optional(step) : std::nullopt;
}

std::string header_of(const std::vector<std::string>& columns) {
  for (const std::string& name : columns)
    if (name.empty() || name.find_first_of(",\"\r\n") != std::string::npos)
      fail(ErrorKind::Value, "csv: no column can be named '{}'", printable(name));
  return fmt::format("step,{}", fmt::join(columns, ","));
}

} // namespace

CsvLog::CsvLog(const std::filesystem::path& path, std::vector<std::string> columns,
               std::optional<std::int64_t> keep_to)
    : columns_(std::move(columns)) {
  const std::string header = header_of(columns_);
  std::uint64_t kept = 0;
  if (keep_to) {
    bool first = true;
    kept = bytes_up_to_step(
        "csv", path, *keep_to, [&](std::string_view line) -> std::optional<std::int64_t> {
          if (!first)
            return leading_step(line);
          first = false;
          if (line != header)
            fail_at("csv", path, 0, "the columns are '{}', not '{}'", line, header);
          return -1;
        });
  }
  file_ = std::make_unique<AppendFile>("csv", path, kept);
  if (kept == 0)
    file_->write(header + "\n");
}

CsvLog::~CsvLog() = default;

void CsvLog::write(std::int64_t step, const Measurements& values) {
  for (const auto& [name, value] : values)
    if (std::find(columns_.begin(), columns_.end(), name) == columns_.end())
      fail(ErrorKind::Value, "csv: '{}' is no column ({})", name, fmt::join(columns_, ", "));
  std::string line = std::to_string(step);
  for (const std::string& column : columns_) {
    const auto value = values.find(column);
    line += value == values.end() ? "," : fmt::format(",{}", value->second);
  }
  file_->write(line + "\n");
}

namespace {

constexpr std::string_view kStep = "{\"step\":";

std::uint64_t json_lines_up_to(const std::filesystem::path& path, std::int64_t last) {
  return bytes_up_to_step("jsonl", path, last,
                          [](std::string_view line) -> std::optional<std::int64_t> {
                            if (!line.starts_with(kStep))
                              return std::nullopt;
                            return leading_step(line.substr(kStep.size()));
                          });
}

} // namespace

JsonLinesLog::JsonLinesLog(const std::filesystem::path& path, std::optional<std::int64_t> keep_to)
    : file_(std::make_unique<AppendFile>("jsonl", path,
                                         keep_to ? json_lines_up_to(path, *keep_to) : 0)) {}

JsonLinesLog::~JsonLinesLog() = default;

void JsonLinesLog::write(std::int64_t step, const Measurements& values) {
  nlohmann::ordered_json line = {{"step", step}};
  for (const auto& [name, value] : values)
    line[name] = value;
  constexpr auto kReplace = nlohmann::ordered_json::error_handler_t::replace;
  file_->write(line.dump(-1, ' ', false, kReplace) + "\n");
}

} // namespace egret::io

// Choices as JSON, to carry them from machine to machine of one kind.
#include "compiler/search/database_rows.h"
#include "kernel/schedule.h"
#include "support/fail.h"

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

namespace egret::compiler {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TuningKey& key, const TuningChoice& c) {
  return {{"region", hex(key.region)},
          {"target", hex(key.target)},
          {"workers", key.workers},
          {"generators", hex(key.generators)},
          {"schedule", c.schedule},
          {"name", c.name},
          {"device", c.device},
          {"effort", c.effort},
          {"seconds", c.seconds},
          {"spread", c.spread},
          {"greedy_seconds", c.greedy_seconds},
          {"error", c.error},
          {"candidates", c.candidates},
          {"made", c.made}};
}

// One entry, with errors that name it.
class Entry {
public:
  Entry(const Json& json, std::size_t number) : json_(json), number_(number) {
    if (!json.is_object())
      refuse("it is no object");
  }
  std::string text(const char* name) const {
    const Json& value = member(name);
    if (!value.is_string())
      refuse(fmt::format("`{}` is no text", name));
    return value.get<std::string>();
  }
  std::uint64_t word(const char* name) const {
    const std::string hex = text(name);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
    if (hex.size() != 16 || error != std::errc{} || end != hex.data() + hex.size())
      refuse(fmt::format("`{}` is no 16 hexadecimal digits", name));
    return value;
  }
  double seconds(const char* name) const {
    const Json& value = member(name);
    if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
      refuse(fmt::format("`{}` is no number from 0 on", name));
    return value.get<double>();
  }
  std::int64_t count(const char* name, std::int64_t least, std::int64_t most) const {
    const Json& value = member(name);
    if (!value.is_number_integer() || value.get<double>() < static_cast<double>(least) ||
        value.get<double>() > static_cast<double>(most))
      refuse(fmt::format("`{}` is no integer from {} to {}", name, least, most));
    return value.get<std::int64_t>();
  }
  [[noreturn]] void refuse(const std::string& why) const {
    fail(ErrorKind::Parse, "import: choice {}: {}", number_, why);
  }

private:
  const Json& member(const char* name) const {
    const auto found = json_.find(name);
    if (found == json_.end())
      refuse(fmt::format("it has no `{}`", name));
    return *found;
  }
  const Json& json_;
  std::size_t number_;
};

std::pair<TuningKey, TuningChoice> choice_of(const Entry& entry) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  TuningKey key{entry.word("region"), entry.word("target"),
                static_cast<int>(entry.count("workers", 1, 1 << 20)), entry.word("generators")};
  TuningChoice c;
  c.schedule = entry.text("schedule");
  try {
    kernel::parse_schedule(c.schedule);
  } catch (const Error& error) {
    entry.refuse(error.what());
  }
  c.name = entry.text("name");
  c.device = entry.text("device");
  c.effort = entry.text("effort");
  c.seconds = entry.seconds("seconds");
  c.spread = entry.seconds("spread");
  c.greedy_seconds = entry.seconds("greedy_seconds");
  c.error = entry.seconds("error");
  c.candidates = entry.count("candidates", 0, kMost);
  c.made = entry.count("made", 0, kMost);
  return {key, std::move(c)};
}

} // namespace

std::string TuningDatabase::export_json() {
  Json list = Json::array();
  for (const auto& [key, choice] : choices())
    list.push_back(json_of(key, choice));
  return Json{{"format", "egret tuning 1"}, {"choices", std::move(list)}}.dump(
      1, ' ', false, Json::error_handler_t::replace);
}

std::int64_t TuningDatabase::import_json(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::parse_error& error) {
    fail(ErrorKind::Parse, "import: this is no JSON: it ends or goes wrong at byte {}", error.byte);
  } catch (const Json::exception&) {
    fail(ErrorKind::Parse, "import: this is no JSON: a number is beyond f64");
  }
  if (!json.is_object() || json.value("format", Json()) != "egret tuning 1" ||
      !json.contains("choices") || !json["choices"].is_array())
    fail(ErrorKind::Parse, "import: this is not what `egret cache export` writes");
  std::vector<std::pair<TuningKey, TuningChoice>> all;
  for (const Json& entry : json["choices"])
    all.push_back(choice_of(Entry(entry, all.size())));
  std::int64_t written = 0;
  for (const auto& [key, choice] : all)
    written += put(key, choice);
  return written;
}

} // namespace egret::compiler

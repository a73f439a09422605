#include "view/page.h"

#include "compiler/record/record.h"
#include "support/fail.h"

#include <nlohmann/json.hpp>

namespace egret::view {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kPlace = "RECORD_GOES_HERE"; // of the record, in the page

void check_header(const std::string& file, std::string_view line) {
  const Json header = Json::parse(line, nullptr, false);
  const auto field = [&](const char* name) {
    return header.is_object() && header.contains(name) ? header[name] : Json();
  };
  if (field("event") != "record" || field("format") != "egret-record")
    fail(ErrorKind::Parse, "{}: no record of egret: its first line is not that of one", file);
  if (field("version") != compiler::RecordWriter::kVersion)
    fail(ErrorKind::Parse, "{}: a record of version {}; this egret reads version {}", file,
         field("version").dump(-1, ' ', true, Json::error_handler_t::replace),
         compiler::RecordWriter::kVersion);
}

/// `<` occurs in JSON only inside of texts, where this stands for it.
void append_escaped(std::string& page, std::string_view line) {
  for (const char c : line)
    if (c == '<')
      page += "\\u003c";
    else
      page += c;
}

} // namespace

void check_record(const std::string& file, std::string_view text) {
  if (text.empty())
    fail(ErrorKind::Parse, "{}: no record of egret: it is empty", file);
  check_header(file, text.substr(0, text.find('\n')));
}

std::string page_of_record(const std::string& file, std::string_view text) {
  const std::string_view page = viewer_page();
  const std::size_t place = page.find(kPlace);
  ensure(place != std::string_view::npos, "view: the page has no place for a record");
  std::string made(page.substr(0, place));
  made.reserve(page.size() + text.size() + text.size() / 8);
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    const bool last = end == std::string_view::npos;
    text = last ? std::string_view() : text.substr(end + 1);
    if (++number == 1)
      check_header(file, line);
    const bool valid = Json::accept(line);
    if (!valid && last) // the process that wrote it has ended in the middle of a line
      break;
    if (!valid)
      fail(ErrorKind::Parse, "{}: line {} is no JSON", file, number);
    append_escaped(made, line);
    made += '\n';
  }
  if (number == 0)
    fail(ErrorKind::Parse, "{}: no record of egret: it is empty", file);
  made += page.substr(place + kPlace.size());
  return made;
}

} // namespace egret::view

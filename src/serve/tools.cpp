#include "serve/tools.h"

#include "egret/error.h"
#include "text/json_fields.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

namespace egret::serve {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>";
constexpr std::string_view kBlanks = " \t\r\n";
/// Ends of a call that are tried: an argument may hold the word for it.
constexpr int kMostEnds = 16;

/// References within a schema that becomes a part of another one.
void move_references(Json& schema, const std::string& to) {
  if (schema.is_object()) {
    if (const auto at = schema.find("$ref"); at != schema.end() && at->is_string())
      if (const std::string from = at->get<std::string>(); from.starts_with('#'))
        *at = "#" + to + from.substr(1);
  }
  if (schema.is_structured())
    for (Json& part : schema)
      move_references(part, to);
}

/// The call that an object says; nothing where it says none.
std::optional<ToolCall> call_of(const Json& json) {
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string())
    return {};
  const char* key = json.contains("arguments") ? "arguments" : "parameters";
  const Json arguments = json.value(key, Json::object());
  std::random_device device;
  return ToolCall{fmt::format("call_{:08x}{:08x}", device(), device()),
                  json["name"].get<std::string>(),
                  arguments.is_string() ? arguments.get<std::string>() : arguments.dump()};
}

std::optional<ToolCall> call_in(std::string_view text) {
  try {
    return call_of(text::parse_ordered_json(text, "a call"));
  } catch (const Error&) {
    return {};
  }
}

/// All calls of a text; none where a part of it is no call.
std::vector<ToolCall> calls_in(std::string_view text, ToolForm form) {
  std::vector<ToolCall> calls;
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    if (text.empty())
      return calls;
    std::optional<ToolCall> call;
    if (form == ToolForm::Hermes) {
      if (!text.starts_with(kOpen))
        return {};
      std::size_t end = kOpen.size();
      for (int tries = 0; !call && tries < kMostEnds; ++tries) {
        const std::size_t at = text.find(kClose, end);
        if (at == std::string_view::npos)
          return {};
        call = call_in(text.substr(kOpen.size(), at - kOpen.size()));
        end = at + kClose.size();
      }
      text.remove_prefix(end);
    } else {
      call = call_in(text);
      text = {};
    }
    if (!call)
      return {};
    calls.push_back(std::move(*call));
  }
}

} // namespace

ToolForm tool_form_of(std::string_view chat_template) {
  const auto has = [&](std::string_view part) {
    return chat_template.find(part) != std::string_view::npos;
  };
  if (!has("tools"))
    return ToolForm::None;
  if (has(kOpen) && has("arguments"))
    return ToolForm::Hermes;
  return has("parameters") && (has("ipython") || has("python_tag")) ? ToolForm::Llama
                                                                    : ToolForm::None;
}

CallText call_text(ToolForm form, const std::vector<Tool>& tools) {
  const char* key = form == ToolForm::Hermes ? "arguments" : "parameters";
  Json all = Json::array();
  for (const Tool& tool : tools) {
    Json parameters = Json::parse(tool.parameters);
    move_references(parameters, fmt::format("/anyOf/{}/properties/{}", all.size(), key));
    all.push_back({{"type", "object"},
                   {"properties", {{"name", {{"const", tool.name}}}, {key, std::move(parameters)}}},
                   {"required", {"name", key}},
                   {"additionalProperties", false}});
  }
  const bool hermes = form == ToolForm::Hermes;
  return {hermes ? fmt::format("{}\n", kOpen) : "", Json{{"anyOf", std::move(all)}}.dump(),
          hermes ? fmt::format("\n{}", kClose) : ""};
}

std::string ToolCallReader::push(std::string_view text) {
  all_ += text;
  std::string certain;
  if (form_ == ToolForm::None) {
    certain = text;
  } else if (form_ == ToolForm::Hermes) {
    certain = content_.push(text);
  } else {
    if (const std::size_t at = all_.find_first_not_of(kBlanks);
        start_ == Start::Open && at != std::string::npos)
      start_ = all_[at] == '{' ? Start::Call : Start::Text;
    if (start_ == Start::Text)
      certain = all_.substr(passed_);
  }
  passed_ += certain.size();
  return certain;
}

ToolCallReader::Rest ToolCallReader::finish() {
  Rest rest;
  if (form_ != ToolForm::None)
    rest.calls = calls_in(std::string_view(all_).substr(passed_), form_);
  if (!names_.empty() && std::ranges::any_of(rest.calls, [&](const ToolCall& call) {
        return std::ranges::find(names_, call.name) == names_.end();
      }))
    rest.calls.clear(); // JSON that only looks like one
  if (rest.calls.empty())
    rest.text = all_.substr(passed_);
  all_.clear();
  passed_ = 0;
  return rest;
}

} // namespace egret::serve

#include "serve/request.h"

#include "egret/error.h"
#include "serve/refusal.h"
#include "support/printable.h"
#include "text/json_fields.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <set>

namespace egret::serve {

namespace {

using json = nlohmann::ordered_json; // schemas and tools keep the order of their members

constexpr std::size_t kMostStops = 16, kMostStopBytes = 256, kMostMessages = 4096, kMostTools = 128,
                      kMostInputs = 256, kMostName = 64;
constexpr std::int64_t kMostChoices = 16, kMostLogprobs = 20;

[[noreturn]] void refuse(const std::string& field, const std::string& why) {
  throw Refusal(400, fmt::format("'{}' {}", field, why), field);
}

const std::string& text_of(const json& value, const std::string& field) {
  if (!value.is_string())
    refuse(field, fmt::format("must be a string, not {}", value.type_name()));
  return value.get_ref<const std::string&>();
}

/// Fields of an object, each read at most once; a null counts as absent.
class Fields {
public:
  Fields(const json& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {
    if (!object.is_object())
      throw Refusal(400,
                    fmt::format("{} must be a JSON object, not {}",
                                prefix_.empty() ? "the body" : prefix_, object.type_name()),
                    prefix_);
  }

  std::string path(const char* name) const { return prefix_.empty() ? name : prefix_ + "." + name; }
  const json* find(const char* name) {
    known_.insert(name);
    const auto at = object_.find(name);
    return at == object_.end() || at->is_null() ? nullptr : &*at;
  }
  const json& required(const char* name) {
    const json* value = find(name);
    if (value == nullptr)
      refuse(path(name), "is missing");
    return *value;
  }
  std::string text(const char* name) {
    const json* value = find(name);
    return value == nullptr ? std::string() : text_of(*value, path(name));
  }
  bool flag(const char* name, bool otherwise) {
    const json* value = find(name);
    if (value == nullptr)
      return otherwise;
    if (!value->is_boolean())
      refuse(path(name), fmt::format("must be a boolean, not {}", value->type_name()));
    return value->get<bool>();
  }
  std::optional<double> number(const char* name, double least, double most) {
    const json* value = find(name);
    if (value == nullptr)
      return {};
    if (!value->is_number())
      refuse(path(name), fmt::format("must be a number, not {}", value->type_name()));
    const auto x = value->get<double>();
    if (!(x >= least && x <= most))
      refuse(path(name), fmt::format("is {}; it must be {} to {}", x, least, most));
    return x;
  }
  std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most) {
    const json* value = find(name);
    if (value == nullptr)
      return {};
    if (!value->is_number_integer())
      refuse(path(name), fmt::format("must be an integer, not {}",
                                     value->is_number() ? value->dump() : value->type_name()));
    const bool small = !value->is_number_unsigned() || value->get<std::uint64_t>() <= INT64_MAX;
    if (!small || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most)
      refuse(path(name), fmt::format("is {}; it must be {} to {}", value->dump(), least, most));
    return value->get<std::int64_t>();
  }
  /// A field of OpenAI's interface that may only have values that change nothing.
  void neutral(const char* name, std::initializer_list<json> values) {
    const json* value = find(name);
    if (value != nullptr && std::find(values.begin(), values.end(), *value) == values.end())
      refuse(path(name), "is not supported with this value");
  }
  void ignored(const char* name) { (void)find(name); }

  void require_all_known() const {
    for (const auto& [name, value] : object_.items())
      if (!known_.contains(name)) {
        const std::string field = printable(name);
        refuse(prefix_.empty() ? field : prefix_ + "." + field, "is not a known field");
      }
  }

private:
  const json& object_;
  std::string prefix_;
  std::set<std::string, std::less<>> known_;
};

json parsed(std::string_view body) {
  try {
    return text::parse_ordered_json(body, "the body");
  } catch (const Error& error) {
    throw Refusal(400, error.what());
  }
}

/// A message's content: a string, or parts of text one after the other.
std::string content_of(const json* value, const std::string& field) {
  if (value == nullptr)
    return {};
  if (!value->is_array())
    return text_of(*value, field);
  std::string all;
  for (std::size_t i = 0; i < value->size(); ++i) {
    Fields part((*value)[i], fmt::format("{}[{}]", field, i));
    if (const std::string& type = text_of(part.required("type"), part.path("type")); type != "text")
      refuse(part.path("type"), fmt::format("is '{}'; only 'text' is supported", printable(type)));
    all += text_of(part.required("text"), part.path("text"));
    part.require_all_known();
  }
  return all;
}

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kMostName && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

std::string name_in(Fields& fields) {
  std::string name = text_of(fields.required("name"), fields.path("name"));
  if (!is_name(name))
    refuse(fields.path("name"), fmt::format("is '{}'; it must be 1 to {} letters, digits, _ and -",
                                            printable(name), kMostName));
  return name;
}

/// {"type": "function", "function": {...}}; the inner fields.
const json& function_in(Fields& fields) {
  const std::string& type = text_of(fields.required("type"), fields.path("type"));
  if (type != "function")
    refuse(fields.path("type"),
           fmt::format("is '{}'; only 'function' is supported", printable(type)));
  return fields.required("function");
}

/// The calls of an earlier answer, with arguments as objects: templates write those.
json read_calls(const json& value, const std::string& field) {
  if (!value.is_array() || value.size() > kMostTools)
    refuse(field, fmt::format("must be an array of up to {} calls", kMostTools));
  json calls = json::array();
  for (std::size_t i = 0; i < value.size(); ++i) {
    Fields fields(value[i], fmt::format("{}[{}]", field, i));
    const json& function = function_in(fields);
    Fields inner(function, fields.path("function"));
    const std::string name = name_in(inner);
    json arguments = json::object();
    if (const std::string text = inner.text("arguments"); !text.empty()) {
      try {
        arguments = text::parse_ordered_json(text, inner.path("arguments"));
      } catch (const Error& error) {
        throw Refusal(400, error.what(), inner.path("arguments"));
      }
    }
    calls.push_back({{"id", fields.text("id")},
                     {"type", "function"},
                     {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
    fields.ignored("index");
    inner.require_all_known();
    fields.require_all_known();
  }
  return calls;
}

Messages read_messages(const json& value) {
  if (!value.is_array())
    refuse("messages", fmt::format("must be an array, not {}", value.type_name()));
  if (value.empty() || value.size() > kMostMessages)
    refuse("messages",
           fmt::format("has {} messages; it must have 1 to {}", value.size(), kMostMessages));
  static const std::set<std::string, std::less<>> roles = {"system", "developer", "user",
                                                           "assistant", "tool"};
  Messages messages;
  for (std::size_t i = 0; i < value.size(); ++i) {
    Fields fields(value[i], fmt::format("messages[{}]", i));
    std::string role = text_of(fields.required("role"), fields.path("role"));
    if (!roles.contains(role))
      refuse(fields.path("role"),
             fmt::format("is '{}'; roles are {}", printable(role), fmt::join(roles, ", ")));
    if (role == "developer") // the later name of the same role, which templates do not know
      role = "system";
    const json* content =
        role == "assistant" ? fields.find("content") : &fields.required("content");
    for (const char* name : {"function_call", "audio"})
      fields.neutral(name, {json::array()});
    for (const char* name : {"refusal", "annotations"})
      fields.ignored(name);
    json more = json::object();
    for (const char* name : {"name", "tool_call_id"})
      if (std::string text = fields.text(name); !text.empty())
        more[name] = std::move(text);
    if (const json* calls = role == "assistant" ? fields.find("tool_calls") : nullptr;
        calls != nullptr && !calls->empty())
      more["tool_calls"] = read_calls(*calls, fields.path("tool_calls"));
    messages.push_back({role, content_of(content, fields.path("content")),
                        more.empty() ? std::string() : more.dump()});
    fields.require_all_known();
  }
  return messages;
}

std::vector<int> read_token_ids(const json& value, const std::string& field) {
  std::vector<int> ids;
  for (std::size_t i = 0; i < value.size(); ++i) {
    const json& id = value[i];
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX)
      refuse(fmt::format("{}[{}]", field, i), "is not a token id");
    ids.push_back(id.get<int>());
  }
  return ids;
}

/// A string, an array of one, an array of ids, or an array of one such array.
Prompt read_prompt(const json& value) {
  if (value.is_string())
    return value.get<std::string>();
  if (!value.is_array() || value.empty())
    refuse("prompt", "must be a string or an array of token ids");
  if (value[0].is_number())
    return read_token_ids(value, "prompt");
  if (value.size() != 1)
    refuse("prompt", "has several prompts; one a request is supported");
  return read_prompt(value[0]);
}

std::vector<std::string> read_stops(const json* value) {
  std::vector<std::string> stops;
  if (value == nullptr)
    return stops;
  if (value->is_string())
    stops.push_back(value->get<std::string>());
  else if (!value->is_array())
    refuse("stop", "must be a string or an array of strings");
  else
    for (std::size_t i = 0; i < value->size(); ++i)
      stops.push_back(text_of((*value)[i], fmt::format("stop[{}]", i)));
  if (stops.size() > kMostStops)
    refuse("stop", fmt::format("has {} strings; {} are allowed", stops.size(), kMostStops));
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > kMostStopBytes)
      refuse("stop", fmt::format("has a string of {} bytes; it must be 1 to {}", stop.size(),
                                 kMostStopBytes));
  return stops;
}

AnswerFormat read_format(Fields& fields) {
  AnswerFormat format;
  const json* value = fields.find("response_format");
  if (value == nullptr)
    return format;
  Fields of(*value, fields.path("response_format"));
  const std::string& type = text_of(of.required("type"), of.path("type"));
  if (type == "json_object") {
    format.kind = AnswerFormat::Kind::JsonObject;
  } else if (type == "json_schema") {
    Fields inner(of.required("json_schema"), of.path("json_schema"));
    (void)name_in(inner);
    inner.ignored("description");
    inner.ignored("strict"); // always
    format.kind = AnswerFormat::Kind::Schema;
    format.schema = inner.required("schema").dump();
    inner.require_all_known();
  } else if (type != "text") {
    refuse(of.path("type"),
           fmt::format("is '{}'; text, json_object and json_schema are known", printable(type)));
  }
  of.require_all_known();
  return format;
}

void read_tools(Fields& fields, CompletionBody& body) {
  body.one_call = !fields.flag("parallel_tool_calls", true);
  const json* choice = fields.find("tool_choice");
  const json* tools = fields.find("tools");
  if (tools != nullptr && !tools->is_array())
    refuse("tools", fmt::format("must be an array, not {}", tools->type_name()));
  if (tools == nullptr || tools->empty()) {
    if (choice != nullptr && *choice != "none" && *choice != "auto")
      refuse("tool_choice", "needs 'tools'");
    return;
  }
  if (tools->size() > kMostTools)
    refuse("tools", fmt::format("has {} tools; {} are allowed", tools->size(), kMostTools));
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Fields tool((*tools)[i], fmt::format("tools[{}]", i));
    Fields function(function_in(tool), tool.path("function"));
    const std::string name = name_in(function);
    for (const Tool& other : body.tools)
      if (other.name == name)
        refuse(function.path("name"), fmt::format("is '{}', as that of another tool", name));
    const json* parameters = function.find("parameters");
    if (parameters != nullptr && !parameters->is_object())
      refuse(function.path("parameters"),
             fmt::format("must be an object, not {}", parameters->type_name()));
    body.tools.push_back(
        {name, parameters != nullptr ? parameters->dump() : R"({"type":"object"})"});
    (void)function.text("description");
    function.ignored("strict");
    function.require_all_known();
    tool.require_all_known();
  }
  body.tools_json = tools->dump();
  body.tool_choice = ToolChoice::Auto;
  if (choice == nullptr || *choice == "auto")
    return;
  if (*choice == "none" || *choice == "required") {
    body.tool_choice = *choice == "none" ? ToolChoice::None : ToolChoice::Required;
    return;
  }
  Fields named(*choice, "tool_choice");
  Fields function(function_in(named), "tool_choice.function");
  const std::string name = name_in(function);
  std::erase_if(body.tools, [&](const Tool& tool) { return tool.name != name; });
  if (body.tools.empty())
    refuse("tool_choice.function.name", fmt::format("is '{}', which is not among 'tools'", name));
  body.tool_choice = ToolChoice::Required;
  function.require_all_known();
  named.require_all_known();
}

/// What both kinds of completions have.
void read_common(Fields& fields, CompletionBody& body) {
  body.model = fields.text("model");
  body.max_tokens = fields.integer("max_tokens", 1, INT32_MAX);
  body.temperature = fields.number("temperature", 0, 100);
  body.top_p = fields.number("top_p", 0, 1);
  if (body.top_p)
    body.top_p = std::max(*body.top_p, 1e-9); // 0: only the likeliest
  body.top_k = fields.integer("top_k", -1, INT32_MAX);
  if (body.top_k)
    body.top_k = std::max<std::int64_t>(*body.top_k, 0); // -1: all
  body.min_p = fields.number("min_p", 0, 1);
  body.repetition_penalty = fields.number("repetition_penalty", 1e-6, 1e6);
  body.presence_penalty = fields.number("presence_penalty", -2, 2).value_or(0);
  body.frequency_penalty = fields.number("frequency_penalty", -2, 2).value_or(0);
  if (const auto seed = fields.integer("seed", INT64_MIN, INT64_MAX))
    body.seed = static_cast<std::uint64_t>(*seed);
  body.stop = read_stops(fields.find("stop"));
  body.stream = fields.flag("stream", false);
  if (const json* options = fields.find("stream_options")) {
    if (!body.stream)
      refuse("stream_options", "is for requests with 'stream'");
    Fields inner(*options, "stream_options");
    body.include_usage = inner.flag("include_usage", false);
    inner.neutral("include_obfuscation", {false});
    inner.require_all_known();
  }
  body.choices = static_cast<std::size_t>(fields.integer("n", 1, kMostChoices).value_or(1));
  fields.neutral("logit_bias", {json::object()});
  for (const char* name : {"user", "metadata", "store", "service_tier", "safety_identifier",
                           "prompt_cache_key", "prompt_cache_retention"})
    fields.ignored(name);
}

} // namespace

std::string body_of(const Refusal& refusal) {
  const auto or_null = [](const std::string& text) { return text.empty() ? json() : json(text); };
  const char* type = refusal.status == 429   ? "rate_limit_error"
                     : refusal.status == 504 ? "timeout_error"
                     : refusal.status >= 500 ? "server_error"
                                             : "invalid_request_error";
  return json{{"error",
               {{"message", refusal.message},
                {"type", type},
                {"param", or_null(refusal.param)},
                {"code", or_null(refusal.code)}}}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

CompletionBody read_chat_body(std::string_view text) {
  const json value = parsed(text);
  Fields fields(value, "");
  CompletionBody body;
  body.prompt = read_messages(fields.required("messages"));
  read_common(fields, body);
  if (const auto most = fields.integer("max_completion_tokens", 1, INT32_MAX))
    body.max_tokens = body.max_tokens ? std::min(*body.max_tokens, *most) : most;
  const bool logprobs = fields.flag("logprobs", false);
  body.top_logprobs = fields.integer("top_logprobs", 0, kMostLogprobs);
  if (body.top_logprobs && !logprobs && *body.top_logprobs > 0)
    refuse("top_logprobs", "needs 'logprobs'");
  body.top_logprobs = logprobs ? std::optional(body.top_logprobs.value_or(0)) : std::nullopt;
  body.format = read_format(fields);
  read_tools(fields, body);
  fields.neutral("modalities", {json::array({"text"})});
  fields.neutral("functions", {json::array()}); // the older names of tools and tool_choice
  fields.neutral("function_call", {"none", "auto"});
  fields.require_all_known();
  return body;
}

CompletionBody read_completion_body(std::string_view text) {
  constexpr std::int64_t kDefaultTokens = 16; // as OpenAI's interface has it
  const json value = parsed(text);
  Fields fields(value, "");
  CompletionBody body;
  body.prompt = read_prompt(fields.required("prompt"));
  read_common(fields, body);
  body.max_tokens = body.max_tokens.value_or(kDefaultTokens);
  fields.neutral("best_of", {1});
  fields.neutral("echo", {false});
  body.top_logprobs = fields.integer("logprobs", 0, kMostLogprobs);
  fields.neutral("suffix", {""});
  fields.require_all_known();
  return body;
}

TokenizeBody read_tokenize_body(std::string_view text) {
  const json value = parsed(text);
  Fields fields(value, "");
  TokenizeBody body;
  body.model = fields.text("model");
  body.add_special = fields.flag("add_special_tokens", true);
  const json* messages = fields.find("messages");
  if (messages != nullptr && fields.find("prompt") != nullptr)
    refuse("prompt", "and 'messages' exclude each other");
  if (messages != nullptr)
    body.prompt = read_messages(*messages);
  else
    body.prompt = text_of(fields.required("prompt"), "prompt");
  fields.require_all_known();
  return body;
}

EmbeddingBody read_embedding_body(std::string_view text) {
  const json value = parsed(text);
  Fields fields(value, "");
  EmbeddingBody body;
  body.model = fields.text("model");
  const json& input = fields.required("input");
  if (input.is_string()) {
    body.inputs.emplace_back(input.get<std::string>());
  } else if (!input.is_array() || input.empty()) {
    refuse("input", "must be a string, or an array of strings or of token ids");
  } else if (input[0].is_number()) {
    body.inputs.emplace_back(read_token_ids(input, "input"));
  } else {
    if (input.size() > kMostInputs)
      refuse("input", fmt::format("has {} texts; {} are allowed", input.size(), kMostInputs));
    for (std::size_t i = 0; i < input.size(); ++i) {
      const std::string field = fmt::format("input[{}]", i);
      if (input[i].is_array())
        body.inputs.emplace_back(read_token_ids(input[i], field));
      else
        body.inputs.emplace_back(text_of(input[i], field));
    }
  }
  const std::string format = fields.text("encoding_format");
  if (!format.empty() && format != "float" && format != "base64")
    refuse("encoding_format",
           fmt::format("is '{}'; float and base64 are known", printable(format)));
  body.base64 = format == "base64";
  fields.neutral("dimensions", {});
  fields.ignored("user");
  fields.require_all_known();
  return body;
}

} // namespace egret::serve

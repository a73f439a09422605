#include "serve/answer.h"

#include "text/utf8.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <iterator>
#include <nlohmann/json.hpp>

namespace egret::serve {

namespace {

using Json = nlohmann::ordered_json;

Json usage_json(const Usage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.written},
          {"total_tokens", usage.prompt + usage.written},
          {"prompt_tokens_details", {{"cached_tokens", usage.reused}}}};
}

/// An answer or an event of one, without choices.
Json frame(const AnswerForm& form, bool event) {
  const char* object = !form.chat ? "text_completion"
                       : event    ? "chat.completion.chunk"
                                  : "chat.completion";
  return {{"id", form.id}, {"object", object}, {"created", form.created}, {"model", form.model}};
}

Json choice(std::size_t index, const char* key, Json value, Json logprobs, const char* finish) {
  return {{"index", index},
          {key, std::move(value)},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", finish == nullptr ? Json() : Json(finish)}};
}

Json of_chat(const TokenNews::Likely& token) {
  Json bytes = Json::array();
  for (const char c : token.bytes)
    bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", text::replace_invalid_utf8(token.bytes)},
          {"logprob", token.logprob},
          {"bytes", std::move(bytes)}};
}

Json logprobs_json(const AnswerForm& form, const std::vector<TokenNews>& tokens) {
  if (!form.logprobs)
    return nullptr;
  if (form.chat) {
    Json content = Json::array();
    for (const TokenNews& news : tokens) {
      Json one = of_chat(news.token);
      one["top_logprobs"] = Json::array();
      for (const TokenNews::Likely& likely : news.top)
        one["top_logprobs"].push_back(of_chat(likely));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}, {"refusal", nullptr}};
  }
  const auto name = [](const std::string& bytes) { // parts of characters stay apart, as at OpenAI
    if (text::is_utf8(bytes))
      return bytes;
    std::string all = "bytes:";
    for (const char c : bytes)
      all += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    return all;
  };
  Json texts = Json::array(), values = Json::array(), top = Json::array(), offsets = Json::array();
  for (const TokenNews& news : tokens) {
    texts.push_back(name(news.token.bytes));
    values.push_back(news.token.logprob);
    Json likely = Json::object();
    for (const TokenNews::Likely& one : news.top)
      likely[name(one.bytes)] = one.logprob;
    top.push_back(std::move(likely));
    offsets.push_back(news.offset);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(values)},
          {"top_logprobs", std::move(top)},
          {"text_offset", std::move(offsets)}};
}

Json calls_json(const std::vector<ToolCall>& calls, bool event) {
  Json all = Json::array();
  for (const ToolCall& call : calls) {
    Json one = Json::object();
    if (event)
      one["index"] = all.size();
    one["id"] = call.id;
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", call.arguments}};
    all.push_back(std::move(one));
  }
  return all;
}

std::string event_of(const AnswerForm& form, Json choices, Json usage) {
  Json event = frame(form, true);
  event["choices"] = std::move(choices);
  if (form.include_usage)
    event["usage"] = std::move(usage);
  return "data: " + json_text(event) + "\n\n";
}

Json message_json(const ChoiceAnswer& answer) {
  const bool blank = answer.text.find_first_not_of(" \t\r\n") == std::string::npos;
  Json message = {{"role", "assistant"}, {"content", answer.text}, {"refusal", nullptr}};
  if (!answer.calls.empty()) {
    if (blank)
      message["content"] = nullptr;
    message["tool_calls"] = calls_json(answer.calls, false);
  }
  return message;
}

/// The bytes of floats, little-endian, in base64 (RFC 4648).
std::string base64_of(const std::vector<float>& values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (const float x : values)
    for (const auto bits = std::bit_cast<std::uint32_t>(x);
         const unsigned shift : {0U, 8U, 16U, 24U})
      bytes += static_cast<char>(bits >> shift & 0xffU);
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) {
      return k < bytes.size() ? static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[k]))
                              : 0;
    };
    const std::uint32_t group = byte(i) << 16U | byte(i + 1) << 8U | byte(i + 2);
    for (std::size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 0x3fU] : '=';
  }
  return out;
}

} // namespace

std::string embeddings_answer(const std::string& model, const Embeddings& embeddings, bool base64,
                              std::size_t tokens) {
  Json data = Json::array();
  for (const std::vector<float>& values : embeddings.values)
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", base64 ? Json(base64_of(values)) : Json(values)}});
  return json_text({{"object", "list"},
                    {"data", std::move(data)},
                    {"model", model},
                    {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}});
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void ChoiceAnswer::add(Part part) {
  text += part.text;
  std::ranges::move(part.tokens, std::back_inserter(tokens));
  if (part.finish == nullptr)
    return;
  finish = part.finish;
  calls = std::move(part.calls);
}

std::string whole_answer(const AnswerForm& form, const std::vector<ChoiceAnswer>& choices,
                         const Usage& usage) {
  Json answer = frame(form, false);
  answer["choices"] = Json::array();
  for (const ChoiceAnswer& one : choices)
    answer["choices"].push_back(choice(answer["choices"].size(), form.chat ? "message" : "text",
                                       form.chat ? message_json(one) : Json(one.text),
                                       logprobs_json(form, one.tokens), one.finish));
  answer["usage"] = usage_json(usage);
  return json_text(answer);
}

std::string opening_events(const AnswerForm& form) {
  std::string events;
  for (std::size_t i = 0; form.chat && i < form.choices; ++i)
    events += event_of(form,
                       Json::array({choice(i, "delta", {{"role", "assistant"}, {"content", ""}},
                                           nullptr, nullptr)}),
                       nullptr);
  return events;
}

std::string part_events(const AnswerForm& form, const Part& part) {
  const char* key = form.chat ? "delta" : "text";
  const auto event = [&](Json value, Json logprobs, const char* finish) {
    return event_of(
        form,
        Json::array({choice(part.choice, key, std::move(value), std::move(logprobs), finish)}),
        nullptr);
  };
  std::string events;
  if (!form.chat)
    events = event(part.text, logprobs_json(form, part.tokens), part.finish);
  else if (!part.text.empty() || !part.tokens.empty())
    events = event({{"content", part.text}}, logprobs_json(form, part.tokens), nullptr);
  if (!part.calls.empty())
    events += event({{"tool_calls", calls_json(part.calls, true)}}, nullptr, nullptr);
  if (part.finish != nullptr && form.chat)
    events += event(Json::object(), nullptr, part.finish);
  if (!part.last)
    return events;
  if (form.include_usage)
    events += event_of(form, Json::array(), usage_json(part.usage));
  return events + "data: [DONE]\n\n";
}

std::string error_event(const std::string& error_body) {
  return "data: " + error_body + "\n\n";
}

} // namespace egret::serve

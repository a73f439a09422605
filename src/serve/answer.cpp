#include "serve/answer.h"

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

Json choice(const char* key, Json value, const char* finish) {
  return {{"index", 0},
          {key, std::move(value)},
          {"logprobs", nullptr},
          {"finish_reason", finish == nullptr ? Json() : Json(finish)}};
}

std::string event_of(const AnswerForm& form, Json choices, Json usage) {
  Json event = frame(form, true);
  event["choices"] = std::move(choices);
  if (form.include_usage)
    event["usage"] = std::move(usage);
  return "data: " + json_text(event) + "\n\n";
}

Json choice_of_part(const AnswerForm& form, const std::string& text, const char* finish) {
  if (!form.chat)
    return choice("text", text, finish);
  return choice("delta", text.empty() ? Json::object() : Json{{"content", text}}, finish);
}

} // namespace

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string whole_answer(const AnswerForm& form, const std::string& text, const char* finish,
                         const Usage& usage) {
  Json answer = frame(form, false);
  answer["choices"] = Json::array(
      {form.chat ? choice("message",
                          {{"role", "assistant"}, {"content", text}, {"refusal", nullptr}}, finish)
                 : choice("text", text, finish)});
  answer["usage"] = usage_json(usage);
  return json_text(answer);
}

std::string opening_events(const AnswerForm& form) {
  if (!form.chat)
    return {};
  return event_of(form,
                  Json::array({choice("delta", {{"role", "assistant"}, {"content", ""}}, nullptr)}),
                  nullptr);
}

std::string part_events(const AnswerForm& form, const Part& part) {
  std::string events;
  if (!part.text.empty() || !form.chat)
    events = event_of(
        form, Json::array({choice_of_part(form, part.text, form.chat ? nullptr : part.finish)}),
        nullptr);
  if (part.finish == nullptr)
    return events;
  if (form.chat)
    events += event_of(form, Json::array({choice_of_part(form, "", part.finish)}), nullptr);
  if (form.include_usage)
    events += event_of(form, Json::array(), usage_json(part.usage));
  return events + "data: [DONE]\n\n";
}

std::string error_event(const std::string& error_body) {
  return "data: " + error_body + "\n\n";
}

} // namespace egret::serve

// The parts of the server without a socket: stop strings, bodies, answers, metrics.
#include "egret/grammar.h"
#include "serve/answer.h"
#include "serve/metrics.h"
#include "serve/refusal.h"
#include "serve/request.h"
#include "serve/stop_strings.h"
#include "serve/tools.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace egret::serve {
namespace {

using nlohmann::json;

TEST(StopStrings, LetsThroughWhatCannotBeginOne) {
  StopStrings stop({"END", "Ex"});
  EXPECT_EQ(stop.push("a E"), "a ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("N"), "ENN");
  EXPECT_EQ(stop.push("E"), "");
  EXPECT_EQ(stop.finish(), "E");
  EXPECT_FALSE(stop.stopped());
}

TEST(StopStrings, EndsAtTheFirstOfThem) {
  StopStrings stop({"cd", "bcde"});
  EXPECT_EQ(stop.push("ab"), "a");
  EXPECT_EQ(stop.push("cd"), "b");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.finish(), "");
}

TEST(StopStrings, AnyPartsGiveWhatTheWholeGives) {
  const std::string text = "aabaabaaabaab";
  const std::vector<std::string> stops = {"aaab", "bb"};
  const std::string expected = text.substr(0, text.find("aaab"));
  for (unsigned cuts = 0; cuts < (1U << (text.size() - 1)); ++cuts) {
    StopStrings stop(stops);
    std::string part, all;
    for (std::size_t i = 0; i < text.size(); ++i) {
      part += text[i];
      if (i + 1 == text.size() || (cuts >> i & 1U) != 0)
        all += stop.push(std::exchange(part, {}));
    }
    ASSERT_EQ(all + stop.finish(), expected) << cuts;
    ASSERT_TRUE(stop.stopped());
  }
}

TEST(Request, ReadsWhatAChatAsksFor) {
  const CompletionBody body = read_chat_body(R"({"model":"m","messages":[
    {"role":"developer","content":"be brief"},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"é"}],"name":"x"},
    {"role":"assistant","content":null}],
    "max_tokens":9,"max_completion_tokens":7,"temperature":0.5,"top_p":0,"top_k":-1,"seed":-1,
    "stop":"\n","stream":true,"stream_options":{"include_usage":true},"n":1,"user":"u",
    "response_format":{"type":"text"},"presence_penalty":1.5,"tools":[],"logprobs":false})");
  EXPECT_EQ(body.model, "m");
  const Messages& messages = std::get<Messages>(body.prompt);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_EQ(messages[0].role, "system");
  EXPECT_EQ(messages[1].content, "aé");
  EXPECT_EQ(messages[2].content, "");
  EXPECT_EQ(body.max_tokens, 7);
  EXPECT_EQ(body.temperature, 0.5);
  EXPECT_EQ(body.top_p, 1e-9);
  EXPECT_EQ(body.top_k, 0);
  EXPECT_EQ(body.seed, UINT64_MAX);
  EXPECT_EQ(body.stop, std::vector<std::string>{"\n"});
  EXPECT_EQ(body.presence_penalty, 1.5);
  EXPECT_TRUE(body.stream && body.include_usage);
}

TEST(Request, ReadsPromptsOfAllKinds) {
  const auto prompt = [](const std::string& text) {
    return read_completion_body(R"({"prompt":)" + text + "}").prompt;
  };
  EXPECT_EQ(std::get<std::string>(prompt(R"("hi")")), "hi");
  EXPECT_EQ(std::get<std::string>(prompt(R"(["hi"])")), "hi");
  EXPECT_EQ(std::get<std::vector<int>>(prompt("[1,2]")), (std::vector<int>{1, 2}));
  EXPECT_EQ(std::get<std::vector<int>>(prompt("[[1,2]]")), (std::vector<int>{1, 2}));
  EXPECT_EQ(read_completion_body(R"({"prompt":"x"})").max_tokens, 16);
  EXPECT_FALSE(read_tokenize_body(R"({"prompt":"x","add_special_tokens":false})").add_special);
}

json data_of(const std::string& event) {
  EXPECT_EQ(event.substr(0, 6), "data: ");
  EXPECT_EQ(event.substr(event.size() - 2), "\n\n");
  return json::parse(event.substr(6));
}

TEST(Answer, HasTheFieldsOfOpenAisInterface) {
  const AnswerForm form{.chat = true, .id = "chatcmpl-1", .model = "m", .created = 5};
  const Usage usage{.prompt = 3, .reused = 2, .written = 4};
  json answer = json::parse(whole_answer(form, {{.text = "a\nb", .finish = "stop"}}, usage));
  EXPECT_EQ(answer["object"], "chat.completion");
  EXPECT_EQ(answer["choices"][0]["message"]["content"], "a\nb");
  EXPECT_EQ(answer["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(answer["usage"], json({{"prompt_tokens", 3},
                                   {"completion_tokens", 4},
                                   {"total_tokens", 7},
                                   {"prompt_tokens_details", {{"cached_tokens", 2}}}}));
  answer = json::parse(whole_answer({.chat = false}, {{.text = "t", .finish = "length"}}, usage));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["text"], "t");
}

TEST(Answer, StreamsEventsUpToDone) {
  const AnswerForm form{.chat = true, .stream = true, .include_usage = true, .id = "i"};
  json event = data_of(opening_events(form));
  EXPECT_EQ(event["object"], "chat.completion.chunk");
  EXPECT_EQ(event["choices"][0]["delta"], json({{"role", "assistant"}, {"content", ""}}));
  event = data_of(part_events(form, {.text = "x\n\ny"}));
  EXPECT_EQ(event["choices"][0]["delta"]["content"], "x\n\ny");
  EXPECT_TRUE(event["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(event["usage"].is_null());
  const std::string last =
      part_events(form, {.finish = "stop", .usage = {.prompt = 1}, .last = true});
  const std::string done = "data: [DONE]\n\n";
  ASSERT_TRUE(last.ends_with(done)) << last;
  const std::size_t second = last.find("data: ", 1);
  event = data_of(last.substr(0, second));
  EXPECT_EQ(event["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(event["choices"][0]["delta"], json::object());
  event = data_of(last.substr(second, last.size() - done.size() - second));
  EXPECT_EQ(event["choices"], json::array());
  EXPECT_EQ(event["usage"]["prompt_tokens"], 1);
  const std::string text =
      part_events({.chat = false, .stream = true}, {.text = "z", .finish = "length", .last = true});
  event = data_of(text.substr(0, text.size() - done.size()));
  EXPECT_EQ(event["choices"][0]["text"], "z");
  EXPECT_EQ(event["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(event.contains("usage"));
}

/// What a reader gives for a text in parts of so many bytes.
ToolCallReader::Rest read_calls(ToolForm form, const std::string& text, std::size_t bytes) {
  ToolCallReader reader(form);
  std::string passed;
  for (std::size_t at = 0; at < text.size(); at += bytes)
    passed += reader.push(std::string_view(text).substr(at, bytes));
  ToolCallReader::Rest rest = reader.finish();
  rest.text = passed + rest.text;
  return rest;
}

TEST(Tools, CallsAreToldFromOtherText) {
  for (const std::size_t bytes : {1U, 3U, 1000U}) {
    ToolCallReader::Rest rest = read_calls(
        ToolForm::Hermes,
        "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": [2]}}\n"
        "</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n",
        bytes);
    EXPECT_EQ(rest.text, "Let me see.\n");
    ASSERT_EQ(rest.calls.size(), 2U);
    EXPECT_EQ(rest.calls[0].name, "f");
    EXPECT_EQ(rest.calls[0].arguments, R"({"b":1,"a":[2]})");
    EXPECT_EQ(rest.calls[1].arguments, "{}");
    EXPECT_NE(rest.calls[0].id, rest.calls[1].id);
    rest = read_calls(ToolForm::Llama, " {\"name\": \"f\", \"parameters\": {\"x\": null}}", bytes);
    ASSERT_EQ(rest.calls.size(), 1U);
    EXPECT_EQ(rest.calls[0].arguments, R"({"x":null})");
    for (const char* text :
         {"<tool_call>{\"name\":", "a <tool_call>x</tool_call>", "{\"a\":1}", "<tool", "plain", ""})
      for (const ToolForm form : {ToolForm::None, ToolForm::Hermes, ToolForm::Llama}) {
        rest = read_calls(form, text, bytes);
        EXPECT_EQ(rest.text, text);
        EXPECT_TRUE(rest.calls.empty());
      }
  }
}

TEST(Tools, TheFormFollowsFromTheTemplate) {
  EXPECT_EQ(tool_form_of("{% if tools %}<tool_call>{\"name\", \"arguments\"}"), ToolForm::Hermes);
  EXPECT_EQ(tool_form_of("{{ tools }} {\"parameters\": } Environment: ipython"), ToolForm::Llama);
  EXPECT_EQ(tool_form_of("{{ messages }}"), ToolForm::None);
  EXPECT_EQ(tool_form_of("{{ tools }} [TOOL_CALLS]"), ToolForm::None);
}

TEST(Tools, TheTextOfACallFollowsItsParameters) {
  const CallText call =
      call_text(ToolForm::Hermes,
                {{"f", R"({"type":"object","properties":{"x":{"$ref":"#/$defs/i"}},"required":["x"],
          "additionalProperties":false,"$defs":{"i":{"type":"integer"}}})"},
                 {"g", R"({"type":"object","additionalProperties":false})"}});
  const Grammar grammar = Grammar::of_schema(call.schema, "calls", call.before, call.after);
  EXPECT_TRUE(
      grammar.matches("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 5}}\n</tool_call>"));
  EXPECT_TRUE(grammar.matches("<tool_call>\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>"));
  EXPECT_FALSE(grammar.matches("<tool_call>\n{\"name\":\"f\",\"arguments\":{}}\n</tool_call>"));
  EXPECT_FALSE(grammar.matches("{\"name\":\"g\",\"arguments\":{}}"));
}

TEST(Metrics, AreLinesOfPrometheus) {
  Metrics metrics;
  metrics.answered("/v1/models", 200);
  metrics.answered("/v1/models", 200);
  metrics.ended(0.3, 10, 4, 7);
  metrics.first_token(0.01);
  metrics.load(2, 1);
  metrics.cache(
      {.positions = 32, .all = 9, .used = 6, .shared = 2, .cached = 1, .copied = 5, .evicted = 4},
      3);
  const std::string text = metrics.text();
  for (const char* line :
       {"egret_http_responses_total{endpoint=\"/v1/models\",code=\"200\"} 2\n",
        "egret_prompt_tokens_total 10\n", "egret_prompt_tokens_reused_total 4\n",
        "egret_generated_tokens_total 7\n", "egret_requests_running 2\n",
        "egret_requests_waiting 1\n", "egret_cache_blocks_used 6\n",
        "egret_cache_blocks_shared 2\n", "egret_cache_blocks_free 3\n",
        "egret_cache_blocks_cached 1\n", "egret_cache_blocks_copied_total 5\n",
        "egret_cache_blocks_evicted_total 4\n", "egret_requests_preempted_total 3\n",
        "egret_request_seconds_bucket{le=\"0.2\"} 0\n",
        "egret_request_seconds_bucket{le=\"0.5\"} 1\n",
        "egret_request_seconds_bucket{le=\"+Inf\"} 1\n", "egret_request_seconds_sum 0.3\n",
        "egret_time_to_first_token_seconds_bucket{le=\"0.01\"} 1\n",
        "# TYPE egret_request_seconds histogram\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " in:\n" << text;
}

} // namespace
} // namespace egret::serve

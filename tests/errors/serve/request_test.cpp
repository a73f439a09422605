// Bodies that the server refuses: status 400, the field, and why.
#include "serve/refusal.h"
#include "serve/request.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace egret::serve {
namespace {

struct Case {
  std::string body, param, part; ///< part of the message
};

template <class Read>
void expect_refused(Read&& read, const Case& c) {
  try {
    (void)read(c.body);
    ADD_FAILURE() << "taken: " << c.body;
  } catch (const Refusal& refusal) {
    EXPECT_EQ(refusal.status, 400) << c.body;
    EXPECT_EQ(refusal.param, c.param) << c.body << ": " << refusal.message;
    EXPECT_NE(refusal.message.find(c.part), std::string::npos) << c.body << ": " << refusal.message;
  }
}

std::string chat_with(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"a"}],)" + fields + "}";
}
std::string message(const std::string& text) {
  return R"({"messages":[{"role":"user","content":"a"},)" + text + "]}";
}

TEST(ServeErrors, BodiesThatAreNoObject) {
  for (const Case& c :
       std::initializer_list<Case>{{"", "", "not JSON"},
                                   {"{", "", "not JSON"},
                                   {"[]", "", "must be a JSON object, not array"},
                                   {"{\"model\":\"\xff\"}", "", "not JSON"},
                                   {std::string(1000, '['), "", "brackets inside each other"}}) {
    expect_refused(read_chat_body, c);
    expect_refused(read_completion_body, c);
    expect_refused(read_tokenize_body, c);
  }
}

TEST(ServeErrors, FieldsOfChats) {
  for (const Case& c : std::initializer_list<Case>{
           {"{}", "messages", "is missing"},
           {R"({"messages":null})", "messages", "is missing"},
           {R"({"messages":"a"})", "messages", "must be an array, not string"},
           {R"({"messages":[]})", "messages", "has 0 messages"},
           {R"({"messages":[1]})", "messages[0]", "must be a JSON object"},
           {message("{}"), "messages[1].role", "is missing"},
           {message(R"({"role":7})"), "messages[1].role", "must be a string, not number"},
           {message(R"({"role":"king","content":""})"), "messages[1].role", "is 'king'; roles are"},
           {message(R"({"role":"user"})"), "messages[1].content", "is missing"},
           {message(R"({"role":"user","content":1})"), "messages[1].content", "must be a string"},
           {message(R"({"role":"user","content":[{"type":"image_url","image_url":{}}]})"),
            "messages[1].content[0].type", "only 'text'"},
           {message(R"({"role":"user","content":[{"type":"text"}]})"),
            "messages[1].content[0].text", "is missing"},
           {message(R"({"role":"user","content":"","mood":"good"})"), "messages[1].mood",
            "is not a known field"},
           {message(R"({"role":"assistant","tool_calls":5})"), "messages[1].tool_calls",
            "must be an array"},
           {message(R"({"role":"assistant","tool_calls":[{}]})"), "messages[1].tool_calls[0].type",
            "is missing"},
           {message(R"({"role":"assistant","tool_calls":[{"type":"function",
             "function":{"name":"f","arguments":"{"}}]})"),
            "messages[1].tool_calls[0].function.arguments", "not JSON"},
           {chat_with(R"("tools":{})"), "tools", "must be an array, not object"},
           {chat_with(R"("tools":[{"type":"search"}])"), "tools[0].type", "only 'function'"},
           {chat_with(R"("tools":[{"type":"function"}])"), "tools[0].function", "is missing"},
           {chat_with(R"("tools":[{"type":"function","function":{"name":"a b"}}])"),
            "tools[0].function.name", "letters, digits"},
           {chat_with(R"("tools":[{"type":"function","function":{"name":"f","parameters":5}}])"),
            "tools[0].function.parameters", "must be an object, not number"},
           {chat_with(R"("tools":[{"type":"function","function":{"name":"f"}},
             {"type":"function","function":{"name":"f"}}])"),
            "tools[1].function.name", "as that of another tool"},
           {chat_with(R"("tool_choice":"required")"), "tool_choice", "needs 'tools'"},
           {chat_with(R"("tools":[{"type":"function","function":{"name":"f"}}],
             "tool_choice":{"type":"function","function":{"name":"g"}})"),
            "tool_choice.function.name", "is 'g', which is not among 'tools'"},
           {chat_with(R"("logprobs":3)"), "logprobs", "must be a boolean"},
           {chat_with(R"("top_logprobs":3)"), "top_logprobs", "needs 'logprobs'"},
           {chat_with(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs",
            "it must be 0 to 20"},
           {chat_with(R"("response_format":{"type":"xml"})"), "response_format.type",
            "text, json_object and json_schema"},
           {chat_with(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema",
            "is missing"},
           {chat_with(R"("response_format":{"type":"json_schema","json_schema":{"name":"a"}})"),
            "response_format.json_schema.schema", "is missing"},
           {chat_with(R"("prompt":"a")"), "prompt", "is not a known field"}})
    expect_refused(read_chat_body, c);
}

TEST(ServeErrors, FieldsOfBoth) {
  for (const Case& c : std::initializer_list<Case>{
           {R"("model":3)", "model", "must be a string, not number"},
           {R"("max_tokens":0)", "max_tokens", "is 0; it must be 1 to"},
           {R"("max_tokens":1.5)", "max_tokens", "must be an integer, not 1.5"},
           {R"("max_tokens":18446744073709551615)", "max_tokens", "it must be 1 to"},
           {R"("max_tokens":"5")", "max_tokens", "must be an integer, not string"},
           {R"("temperature":-1)", "temperature", "is -1; it must be 0 to"},
           {R"("temperature":"hot")", "temperature", "must be a number, not string"},
           {R"("top_p":1.5)", "top_p", "is 1.5; it must be 0 to 1"},
           {R"("top_k":-2)", "top_k", "is -2"},
           {R"("min_p":2)", "min_p", "is 2"},
           {R"("repetition_penalty":0)", "repetition_penalty", "is 0"},
           {R"("presence_penalty":3)", "presence_penalty", "is 3; it must be -2 to 2"},
           {R"("frequency_penalty":-3)", "frequency_penalty", "is -3"},
           {R"("seed":1.5)", "seed", "must be an integer"},
           {R"("stop":5)", "stop", "must be a string or an array"},
           {R"("stop":[1])", "stop[0]", "must be a string"},
           {R"("stop":"")", "stop", "has a string of 0 bytes"},
           {R"("stop":["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])",
            "stop", "has 17 strings; 16 are allowed"},
           {R"("stream":1)", "stream", "must be a boolean, not number"},
           {R"("stream_options":{})", "stream_options", "is for requests with 'stream'"},
           {R"("stream":true,"stream_options":{"x":1})", "stream_options.x",
            "is not a known field"},
           {R"("n":0)", "n", "is 0; it must be 1 to 16"},
           {R"("logit_bias":{"5":1})", "logit_bias", "not supported"},
           {R"("no\nsuch":1)", "no\\x0asuch", "is not a known field"}}) {
    expect_refused(read_chat_body, {chat_with(c.body), c.param, c.part});
    expect_refused(read_completion_body, {R"({"prompt":"a",)" + c.body + "}", c.param, c.part});
  }
}

TEST(ServeErrors, FieldsOfCompletions) {
  for (const Case& c : std::initializer_list<Case>{
           {"{}", "prompt", "is missing"},
           {R"({"prompt":5})", "prompt", "must be a string or an array"},
           {R"({"prompt":[]})", "prompt", "must be a string or an array"},
           {R"({"prompt":["a","b"]})", "prompt", "has several prompts"},
           {R"({"prompt":[1,-2]})", "prompt[1]", "is not a token id"},
           {R"({"prompt":[1,"a"]})", "prompt[1]", "is not a token id"},
           {R"({"prompt":[4294967296]})", "prompt[0]", "is not a token id"},
           {R"({"prompt":"a","echo":true})", "echo", "not supported"},
           {R"({"prompt":"a","logprobs":true})", "logprobs", "must be an integer"},
           {R"({"prompt":"a","messages":[]})", "messages", "is not a known field"}})
    expect_refused(read_completion_body, c);
  for (const Case& c : std::initializer_list<Case>{
           {"{}", "prompt", "is missing"},
           {R"({"prompt":[1]})", "prompt", "must be a string, not array"},
           {R"({"prompt":"a","messages":[]})", "prompt", "exclude each other"},
           {R"({"prompt":"a","text":"b"})", "text", "is not a known field"}})
    expect_refused(read_tokenize_body, c);
}

TEST(ServeErrors, FieldsOfEmbeddings) {
  for (const Case& c : std::initializer_list<Case>{
           {"{}", "input", "is missing"},
           {R"({"input":5})", "input", "must be a string, or an array"},
           {R"({"input":[]})", "input", "must be a string, or an array"},
           {R"({"input":["a",5]})", "input[1]", "must be a string, not number"},
           {R"({"input":[1,-2]})", "input[1]", "is not a token id"},
           {R"({"input":[[1],["a"]]})", "input[1][0]", "is not a token id"},
           {R"({"input":"a","encoding_format":"hex"})", "encoding_format", "is 'hex'"},
           {R"({"input":"a","dimensions":5})", "dimensions", "not supported"}})
    expect_refused(read_embedding_body, c);
}

TEST(ServeErrors, BodiesOfRefusalsAreJson) {
  const auto error = [](const Refusal& refusal) {
    return nlohmann::json::parse(body_of(refusal))["error"];
  };
  EXPECT_EQ(error({400, "w\xff", "f"})["param"], "f");
  EXPECT_TRUE(error({400, "w"})["param"].is_null());
  EXPECT_EQ(error({404, "w", "", "c"})["code"], "c");
  EXPECT_EQ(error({404, "w"})["type"], "invalid_request_error");
  EXPECT_EQ(error({429, "w"})["type"], "rate_limit_error");
  EXPECT_EQ(error({500, "w"})["type"], "server_error");
}

} // namespace
} // namespace egret::serve

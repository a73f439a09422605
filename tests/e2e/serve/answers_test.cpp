// What requests may ask of answers: JSON by a schema, calls of tools, log-probabilities, several
// texts.
#include "egret/serve.h"

#include "serve/io_loop.h"
#include "support/http_client.h"
#include "support/json_language.h"
#include "support/published_models.h"
#include "support/run_tool.h"

#include <boost/asio/post.hpp>
#include <cstring>
#include <map>
#include <set>

namespace egret::serve {
namespace {

using models::LanguageModel;
using nlohmann::json;
using test::http;
using test::HttpClient;
using test::HttpResponse;

const std::string kChat = "/v1/chat/completions", kText = "/v1/completions";

class Answers : public testing::Test {
protected:
  static void SetUpTestSuite() {
    folder_ = new test::TempFolder;
    test::write_json_language_folder(folder_->path());
    server_ = new Server(LanguageModel::load(folder_->path(), {.context = 1024, .sequences = 4}),
                         Tokenizer::load(folder_->path()), {.model_name = "small"});
  }
  static void TearDownTestSuite() {
    delete server_;
    delete folder_;
  }
  static std::uint16_t port() { return server_->port(); }
  static json post(const std::string& path, const json& body) {
    const HttpResponse r = http(port(), "POST", path, body.dump());
    EXPECT_EQ(r.status, 200) << r.body;
    return json::parse(r.body);
  }
  static json chat(const json& more) {
    json body = {{"messages", {{{"role", "user"}, {"content", "ab"}}}},
                 {"max_tokens", 400},
                 {"temperature", 1.3},
                 {"seed", 11}};
    body.update(more);
    return body;
  }
  static std::vector<json> events_of(const json& body) {
    const HttpResponse r = http(port(), "POST", kChat, body.dump());
    EXPECT_EQ(r.status, 200) << r.body;
    EXPECT_TRUE(r.body.ends_with("data: [DONE]\n\n"));
    std::vector<json> events;
    for (std::size_t at = 0, end = 0; (end = r.body.find("\n\n", at)) != std::string::npos;
         at = end + 2)
      if (const std::string data = r.body.substr(at + 6, end - at - 6); data != "[DONE]")
        events.push_back(json::parse(data));
    return events;
  }
  static test::TempFolder* folder_;
  static Server* server_;
};
test::TempFolder* Answers::folder_ = nullptr;
Server* Answers::server_ = nullptr;

const json kSchema = json::parse(R"({"type":"object","properties":{
  "city":{"type":"string","maxLength":6},"days":{"type":"integer","minimum":1,"maximum":14},
  "kind":{"enum":["sun","rain"]}},"required":["city","days","kind"],"additionalProperties":false})");

TEST_F(Answers, JsonBySchemaIsOfTheSchema) {
  const json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "w"}, {"strict", true}, {"schema", kSchema}}}};
  const json answer = post(kChat, chat({{"response_format", format}, {"n", 4}}));
  ASSERT_EQ(answer["choices"].size(), 4U);
  int whole = 0;
  for (const json& choice : answer["choices"]) {
    if (choice["finish_reason"] == "length")
      continue;
    ++whole;
    const std::string text = choice["message"]["content"];
    const json value = json::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << text;
    EXPECT_TRUE(test::validates(value, kSchema, kSchema)) << text;
  }
  EXPECT_GT(whole, 0);
  const json cut = post(kChat, chat({{"response_format", format}, {"max_tokens", 2}}));
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length");
}

TEST_F(Answers, JsonObjectsAreObjects) {
  int whole = 0;
  for (int seed = 0; seed < 6; ++seed) {
    const json answer =
        post(kChat, chat({{"response_format", {{"type", "json_object"}}}, {"seed", seed}}));
    const std::string text = answer["choices"][0]["message"]["content"];
    EXPECT_EQ(text[0], '{');
    if (answer["choices"][0]["finish_reason"] == "length")
      continue;
    ++whole;
    EXPECT_TRUE(json::parse(text, nullptr, false).is_object()) << text;
  }
  EXPECT_GT(whole, 0);
}

json tools() {
  json weather = {{"type", "function"},
                  {"function", {{"name", "weather"}, {"parameters", kSchema}}}};
  json stop = {{"type", "function"}, {"function", {{"name", "stop-it"}}}};
  stop["function"]["parameters"] = {{"type", "object"},
                                    {"properties", {{"now", {{"type", "boolean"}}}}},
                                    {"additionalProperties", false}};
  return {weather, stop};
}

TEST_F(Answers, AToolThatMustBeCalledIsCalled) {
  for (const json& choice :
       {json("required"), json({{"type", "function"}, {"function", {{"name", "weather"}}}})}) {
    const json answer = post(kChat, chat({{"tools", tools()}, {"tool_choice", choice}}));
    const json& first = answer["choices"][0];
    ASSERT_EQ(first["finish_reason"], "tool_calls") << answer;
    EXPECT_TRUE(first["message"]["content"].is_null());
    const json& call = first["message"]["tool_calls"][0];
    const std::string name = call["function"]["name"];
    const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
    if (choice.is_object()) {
      EXPECT_EQ(name, "weather");
    }
    if (name == "weather") {
      EXPECT_TRUE(test::validates(arguments, kSchema, kSchema)) << arguments;
    }
    // The next turn has the call and its result.
    json next = chat({{"tools", tools()}});
    next["messages"].push_back(first["message"]);
    next["messages"].push_back(
        {{"role", "tool"}, {"tool_call_id", call["id"]}, {"content", "fine"}});
    EXPECT_EQ(post(kChat, next)["choices"].size(), 1U);
  }
  std::string name, arguments, finish;
  for (const json& event :
       events_of(chat({{"tools", tools()}, {"tool_choice", "required"}, {"stream", true}}))) {
    const json& choice = event["choices"][0];
    for (const json& call : choice["delta"].value("tool_calls", json::array())) {
      EXPECT_EQ(call["index"], 0);
      name += call["function"]["name"];
      arguments += call["function"]["arguments"];
    }
    if (choice["finish_reason"].is_string())
      finish = choice["finish_reason"];
  }
  EXPECT_FALSE(name.empty());
  EXPECT_TRUE(json::parse(arguments).is_object());
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(Answers, SeveralTextsHaveSeedsOfTheirOwnAndRepeat) {
  const json body = chat({{"n", 3}, {"max_tokens", 12}});
  const json answer = post(kChat, body);
  std::set<std::string> texts;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    texts.insert(answer["choices"][i]["message"]["content"]);
  }
  EXPECT_EQ(texts.size(), 3U);
  EXPECT_EQ(post(kChat, body)["choices"], answer["choices"]);
  EXPECT_EQ(post(kChat, chat({{"max_tokens", 12}}))["choices"][0], answer["choices"][0]);
  json streamed = body;
  streamed["stream"] = true;
  std::map<std::size_t, std::string> parts;
  std::map<std::size_t, int> finished;
  for (const json& event : events_of(streamed)) {
    const json& choice = event["choices"][0];
    parts[choice["index"]] += choice["delta"].value("content", "");
    finished[choice["index"]] += choice["finish_reason"].is_string();
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(parts[i], answer["choices"][i]["message"]["content"]);
    EXPECT_EQ(finished[i], 1);
  }
}

TEST_F(Answers, LogprobsComeWithTheTokens) {
  const json answer =
      post(kChat, chat({{"logprobs", true}, {"top_logprobs", 2}, {"max_tokens", 6}}));
  const json& content = answer["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(content.size(), answer["usage"]["completion_tokens"]);
  for (const json& token : content) {
    EXPECT_LE(token["logprob"], token["top_logprobs"][0]["logprob"]);
    EXPECT_EQ(token["top_logprobs"].size(), 2U);
    EXPECT_TRUE(token["bytes"].is_array());
  }
  const json text =
      post(kText, {{"prompt", "ab"}, {"logprobs", 3}, {"max_tokens", 5}, {"temperature", 0}});
  const json& given = text["choices"][0]["logprobs"];
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(given[key].size(), text["usage"]["completion_tokens"]) << key;
  EXPECT_EQ(given["text_offset"][0], 0);
  EXPECT_TRUE(post(kChat, chat({{"max_tokens", 2}}))["choices"][0]["logprobs"].is_null());
}

TEST(ServedEncoders, GiveEmbeddingsAndRefuseTexts) {
  test::TempFolder folder;
  const test::PublishedModel bert("encoders/bert.json");
  bert.write(folder.path());
  const json vocabulary = {{"[UNK]", 0}, {"a", 1}, {"cat", 2}, {"dog", 3}};
  test::write_json(
      folder / "tokenizer.json",
      {{"version", "1.0"},
       {"added_tokens", json::array()},
       {"pre_tokenizer", {{"type", "Whitespace"}}},
       {"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "[UNK]"}}}});
  auto encoder = models::TextEncoder::load(folder.path());
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  const std::vector<std::vector<int>> texts = {tokenizer.encode("a cat"), {3, 1, 1}};
  const auto expected = encoder.embeddings(texts);
  Server server(models::TextEncoder::load(folder.path()), tokenizer, {.model_name = "bert"});
  const auto post = [&](const std::string& path, const json& body) {
    return http(server.port(), "POST", path, body.dump());
  };
  const json both = {"a cat", "dog a a"};
  for (const json& input : {both, json(texts)}) {
    const HttpResponse response = post("/v1/embeddings", {{"model", "bert"}, {"input", input}});
    ASSERT_EQ(response.status, 200) << response.body;
    const json answer = json::parse(response.body);
    EXPECT_EQ(answer["usage"]["prompt_tokens"], 5);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(answer["data"][i]["index"], i);
      const auto got = answer["data"][i]["embedding"].get<std::vector<float>>();
      ASSERT_EQ(got.size(), expected[i].size());
      for (std::size_t k = 0; k < got.size(); ++k)
        EXPECT_NEAR(got[k], expected[i][k], 1e-5) << i;
    }
  }
  for (const auto& [path, body] :
       {std::pair(kChat, json{{"messages", {{{"role", "user"}, {"content", "a"}}}}}),
        {kText, json{{"prompt", "a"}}}}) {
    const HttpResponse response = post(path, body);
    EXPECT_EQ(response.status, 400);
    const json error = json::parse(response.body)["error"];
    EXPECT_EQ(error["code"], "no_generation") << response.body;
    EXPECT_EQ(error["param"], "model");
  }
  const HttpResponse far = post("/v1/embeddings", {{"input", std::vector<int>(33, 1)}});
  EXPECT_EQ(far.status, 400) << "the encoder reads 32 tokens";
  EXPECT_EQ(post("/v1/embeddings", {{"input", {999999}}}).status, 400);
}

TEST_F(Answers, EmbeddingsAreThoseOfTheLibrary) {
  LanguageModel model = LanguageModel::load(folder_->path());
  const Tokenizer tokenizer = Tokenizer::load(folder_->path());
  const json answer = post("/v1/embeddings", {{"model", "small"}, {"input", {"ab", "the end"}}});
  ASSERT_EQ(answer["data"].size(), 2U);
  const std::vector<float> expected =
      model.embedding(tokenizer.encode("the end"), models::Pooling::Mean);
  const auto given = answer["data"][1]["embedding"].get<std::vector<float>>();
  ASSERT_EQ(given.size(), expected.size());
  for (std::size_t i = 0; i < given.size(); ++i)
    EXPECT_NEAR(given[i], expected[i], 1e-5);
  EXPECT_EQ(answer["usage"]["prompt_tokens"],
            tokenizer.encode("ab").size() + tokenizer.encode("the end").size());
  const json base64 = post("/v1/embeddings",
                           {{"input", tokenizer.encode("the end")}, {"encoding_format", "base64"}});
  const std::string text = base64["data"][0]["embedding"];
  EXPECT_EQ(text.size(), (4 * expected.size() + 2) / 3 * 4);
  const auto digit = [](char c) {
    return static_cast<unsigned>(
        std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
            .find(c));
  };
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    const unsigned group = digit(text[i]) << 18U | digit(text[i + 1]) << 12U |
                           (digit(text[i + 2]) & 63U) << 6U | (digit(text[i + 3]) & 63U);
    for (const unsigned shift : {16U, 8U, 0U})
      bytes += static_cast<char>(group >> shift & 0xffU);
  }
  for (std::size_t i = 0; i < expected.size(); ++i) {
    float one = 0;
    std::memcpy(&one, bytes.data() + 4 * i, 4);
    EXPECT_NEAR(one, expected[i], 1e-5);
  }
  const HttpResponse r = http(port(), "POST", "/v1/embeddings", R"({"input":["a",""]})");
  EXPECT_EQ(r.status, 400);
  EXPECT_EQ(json::parse(r.body)["error"]["param"], "input[1]");
}

TEST_F(Answers, WhatCannotBeFollowedIsRefusedByName) {
  struct Case {
    json more;
    std::string param, part;
  };
  const auto format = [](const json& schema) {
    return json{{"response_format",
                 {{"type", "json_schema"}, {"json_schema", {{"name", "w"}, {"schema", schema}}}}}};
  };
  for (const Case& c : {Case{format({{"not", json::object()}}),
                             "response_format.json_schema.schema", "'not' is not supported"},
                        Case{format(false), "response_format.json_schema.schema", "nothing is"},
                        Case{{{"tools", tools()},
                              {"tool_choice", "required"},
                              {"response_format", {{"type", "json_object"}}}},
                             "response_format",
                             "exclude each other"},
                        Case{{{"n", 17}}, "n", "it must be 1 to 16"}}) {
    const HttpResponse r = http(port(), "POST", kChat, chat(c.more).dump());
    EXPECT_EQ(r.status, 400) << r.body;
    const json error = json::parse(r.body)["error"];
    EXPECT_EQ(error["param"], c.param);
    test::expect_contains(error["message"], c.part);
  }
}

TEST(IoLoop, GoesOnBehindAHandlerThatThrows) {
  boost::asio::io_context io;
  Metrics metrics;
  int ran = 0;
  for (int i = 0; i < 3; ++i)
    boost::asio::post(io, [&, i] {
      if (i < 2)
        throw std::bad_alloc();
      ++ran;
    });
  run_handlers(io, metrics);
  EXPECT_EQ(ran, 1);
  test::expect_contains(metrics.text(), "egret_internal_errors_total 2\n");
}

TEST(GenerateCommand, WritesJsonByASchemaAndTextByAGrammar) {
  test::TempFolder folder;
  test::write_json_language_folder(folder.path());
  test::write_json(folder / "schema.json", kSchema);
  test::write_file(folder / "words.gbnf", "root ::= (\"ab\" | \"c\"){3} \"!\"\n");
  const std::string generate =
      "generate --model " + folder.path().string() + " --prompt ab --max-new 400 ";
  const test::Ran ran = test::egret_command(generate + "--temperature 1 --json --json-schema " +
                                            (folder / "schema.json").string());
  ASSERT_EQ(ran.code, 0) << ran.err;
  const json out = json::parse(ran.out);
  ASSERT_EQ(out["reason"], "stop") << ran.out;
  const json value = json::parse(out["text"].get<std::string>(), nullptr, false);
  EXPECT_TRUE(test::validates(value, kSchema, kSchema)) << ran.out;
  const std::string words = test::egret_command(generate + "--temperature 1 --grammar " +
                                                (folder / "words.gbnf").string())
                                .out;
  EXPECT_TRUE(words.starts_with("ab") && words.ends_with("!\n")) << words;
  test::write_file(folder / "bad.gbnf", "root ::= other");
  const test::Ran bad =
      test::egret_command(generate + "--temperature 1 --grammar " + (folder / "bad.gbnf").string());
  EXPECT_EQ(bad.code, 1);
  test::expect_contains(bad.err, "bad.gbnf: line 1: there is no rule 'other'");
  EXPECT_EQ(test::egret_command("generate --model " + folder.path().string() +
                                " --ids 1,2 --json-schema " + (folder / "schema.json").string())
                .code,
            2);
  // Guesses change nothing.
  const std::string plain = test::egret_command(generate + "--json --temperature 0").out;
  const test::Ran guessed =
      test::egret_command(generate + "--json --stats --lookup 8 --temperature 0");
  EXPECT_EQ(guessed.out, plain);
}

} // namespace
} // namespace egret::serve

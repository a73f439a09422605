// The server over sockets of this machine, with a small model whose text the library writes too.
#include "egret/grammar.h"
#include "egret/serve.h"

#include "serve/engine.h"
#include "support/http_client.h"
#include "support/language_models.h"
#include "support/memory_shortage.h"
#include "support/run_tool.h"
#include "support/serve_process.h"
#include "support/small_tokenizer.h"

#include <atomic>
#include <fmt/format.h>
#include <future>
#include <latch>
#include <thread>

namespace egret::serve {
namespace {

using models::LanguageModel;
using nlohmann::json;
using test::http;
using test::HttpClient;
using test::HttpResponse;

const json& golden() {
  return test::golden_language("llama");
}

/// The folder of the model, there for the whole program.
const test::TempFolder& folder() {
  static const test::TempFolder* made = [] {
    auto* f = new test::TempFolder;
    test::write_served_folder(f->path());
    return f;
  }();
  return *made;
}

std::unique_ptr<Server> server(ServeOptions options, std::int64_t sequences,
                               std::int64_t context = 128) {
  options.model_name = "small";
  return std::make_unique<Server>(
      LanguageModel::load(folder().path(), {.context = context, .sequences = sequences}),
      Tokenizer::load(folder().path()), std::move(options));
}

/// What the library says after a prompt.
struct Expected {
  std::string text;
  std::size_t prompt = 0, written = 0;
  std::string finish;
};
Expected alone(const std::vector<int>& prompt, models::GenerateOptions options) {
  static LanguageModel model = LanguageModel::load(folder().path());
  const Tokenizer tokenizer = Tokenizer::load(folder().path());
  options.stop = {*tokenizer.special_id("eos_token")};
  for (const int stop : model.config().stop)
    options.stop->push_back(stop);
  const models::Generated made = model.generate(prompt, options);
  return {tokenizer.decode(made.tokens), prompt.size(), made.tokens.size(),
          made.reason == models::StopReason::Stop ? "stop" : "length"};
}
std::vector<int> chat_ids(const std::string& content) {
  return Tokenizer::load(folder().path())
      .encode("<|user|>" + content + "<|end|><|assistant|>", false);
}

json chat_body(const std::string& content, const json& more = json::object()) {
  json body = {{"model", "small"}, {"messages", {{{"role", "user"}, {"content", content}}}}};
  body.update(more);
  return body;
}

/// The JSON of the events of a stream, without [DONE], which must come.
std::vector<json> events_of(const std::string& body) {
  std::vector<json> events;
  std::size_t at = 0;
  for (std::size_t end = 0; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2) {
    const std::string data = body.substr(at + 6, end - at - 6);
    if (data == "[DONE]") {
      EXPECT_EQ(end + 2, body.size()) << "something follows [DONE]";
      return events;
    }
    events.push_back(json::parse(data));
  }
  ADD_FAILURE() << "no [DONE] in " << body;
  return events;
}

class Serving : public testing::Test {
protected:
  static void SetUpTestSuite() { server_ = server({.body_bytes = 20000}, 3).release(); }
  static void TearDownTestSuite() { delete server_; }
  static std::uint16_t port() { return server_->port(); }
  static json post(const std::string& path, const json& body) {
    const HttpResponse r = http(port(), "POST", path, body.dump());
    EXPECT_EQ(r.status, 200) << r.body;
    return json::parse(r.body);
  }

  static Server* server_;
};
Server* Serving::server_ = nullptr;

/// Options with which the library says at least 12 characters to a message; as fields of a request.
struct Telling {
  Expected expected;
  json fields;
};
Telling telling(const std::string& content, std::int64_t most) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Expected expected = alone(chat_ids(content), {.max_new = most, .temperature = 1, .seed = seed});
    if (expected.text.size() >= 12)
      return {std::move(expected), {{"max_tokens", most}, {"temperature", 1}, {"seed", seed}}};
  }
  throw std::runtime_error("no text is long enough");
}

TEST_F(Serving, ChatGivesTheTextOfTheLibrary) {
  const auto& [expected, fields] = telling("hello", 20);
  const json answer = post("/v1/chat/completions", chat_body("hello", fields));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], expected.text);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], expected.finish);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], expected.prompt);
  EXPECT_EQ(answer["usage"]["completion_tokens"], expected.written);
  EXPECT_EQ(answer["model"], "small");
}

TEST_F(Serving, StreamsTheSameTextUpToDone) {
  auto [expected, fields] = telling("stream", 30);
  fields.update({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  const HttpResponse r =
      http(port(), "POST", "/v1/chat/completions", chat_body("stream", fields).dump());
  ASSERT_EQ(r.status, 200) << r.body;
  EXPECT_EQ(r.fields.at("content-type"), "text/event-stream; charset=utf-8");
  const std::vector<json> events = events_of(r.body);
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  std::string text, finish;
  for (std::size_t i = 0; i + 1 < events.size(); ++i) {
    const json& choice = events[i]["choices"][0];
    text += choice["delta"].value("content", "");
    if (choice["finish_reason"].is_string())
      finish = choice["finish_reason"];
  }
  EXPECT_EQ(text, expected.text);
  EXPECT_EQ(finish, expected.finish);
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], expected.written);
}

TEST_F(Serving, CompletionContinuesTextAndIds) {
  const auto ids = golden()["prompt"].get<std::vector<int>>();
  const Expected expected = alone(ids, {.max_new = 16});
  const json answer = post("/v1/completions", {{"prompt", ids}, {"temperature", 0}});
  EXPECT_EQ(answer["choices"][0]["text"], expected.text) << "16 tokens unless told";
  EXPECT_EQ(answer["object"], "text_completion");
  const HttpResponse r =
      http(port(), "POST", "/v1/completions", json({{"prompt", ids}, {"stream", true}}).dump());
  std::string text;
  for (const json& event : events_of(r.body))
    text += event["choices"][0]["text"];
  EXPECT_EQ(text, expected.text);
}

TEST_F(Serving, StopStringsEndTheTextAndAreNoPartOfIt) {
  auto [whole, fields] = telling("stop", 40);
  const std::string stop = whole.text.substr(7, 3);
  const std::string expected = whole.text.substr(0, whole.text.find(stop));
  fields["stop"] = {stop, "never there"};
  const json answer = post("/v1/chat/completions", chat_body("stop", fields));
  EXPECT_EQ(answer["choices"][0]["message"]["content"], expected);
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "stop");
  EXPECT_LT(answer["usage"]["completion_tokens"], whole.written);
  json streamed = chat_body("stop", fields);
  streamed["stream"] = true;
  std::string text;
  for (const json& event :
       events_of(http(port(), "POST", "/v1/chat/completions", streamed.dump()).body))
    text += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(text, expected);
}

TEST_F(Serving, RequestsAtOnceGetWhatTheyGetAlone) {
  constexpr int kClients = 8;
  std::vector<std::future<json>> answers;
  for (int i = 0; i < kClients; ++i)
    answers.push_back(std::async(std::launch::async, [i] {
      return post(
          "/v1/chat/completions",
          chat_body(std::string(static_cast<std::size_t>(i + 1), 'a'),
                    {{"max_tokens", 12 + i}, {"temperature", i % 2}, {"top_k", 10}, {"seed", i}}));
    }));
  for (int i = 0; i < kClients; ++i) {
    const Expected expected = alone(chat_ids(std::string(static_cast<std::size_t>(i + 1), 'a')),
                                    {.max_new = 12 + i,
                                     .temperature = static_cast<double>(i % 2),
                                     .top_k = 10,
                                     .seed = static_cast<std::uint64_t>(i)});
    EXPECT_EQ(answers[static_cast<std::size_t>(i)].get()["choices"][0]["message"]["content"],
              expected.text)
        << i;
  }
}

TEST_F(Serving, OneConnectionTakesRequestsOneAfterTheOther) {
  HttpClient client(port());
  client.request("GET", "/health", "", "");
  client.request("POST", "/v1/completions", R"({"prompt":"ab","max_tokens":3})"); // pipelined
  client.request("GET", "/v1/models/small", "", "Expect: 100-continue\r\n");
  EXPECT_EQ(client.response().body, R"({"status":"ok"})");
  EXPECT_EQ(json::parse(client.response().body)["object"], "text_completion");
  EXPECT_EQ(client.head().status, 100);
  EXPECT_EQ(json::parse(client.response().body)["id"], "small");
  client.request("GET", "/health", "", "Connection: close\r\n");
  EXPECT_EQ(client.response().fields.at("connection"), "close");
  EXPECT_TRUE(client.ended());
}

TEST_F(Serving, TellsOfItselfAndOfTokens) {
  const json models = json::parse(http(port(), "GET", "/v1/models", "", "").body);
  EXPECT_EQ(models["data"][0]["id"], "small");
  EXPECT_EQ(models["data"][0]["max_model_len"], 128);
  const json tokens = post("/tokenize", {{"prompt", "ab"}});
  EXPECT_EQ(tokens["tokens"], Tokenizer::load(folder().path()).encode("ab"));
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_EQ(post("/tokenize", {{"messages", chat_body("ab")["messages"]}})["tokens"],
            chat_ids("ab"));
  (void)post("/v1/completions", {{"prompt", "ab"}});
  const HttpResponse metrics = http(port(), "GET", "/metrics", "", "");
  EXPECT_EQ(metrics.fields.at("content-type"), "text/plain; version=0.0.4");
  test::expect_contains(metrics.body,
                        "egret_http_responses_total{endpoint=\"/v1/models\",code=\"200\"}");
  EXPECT_EQ(metrics.body.find("egret_generated_tokens_total 0\n"), std::string::npos);
}

TEST_F(Serving, HeadHasNoBodySoThatTheNextAnswerIsFound) {
  HttpClient client(port());
  client.request("HEAD", "/health", "", "");
  client.request("GET", "/health", "", "");
  const HttpResponse head = client.head();
  EXPECT_EQ(head.status, 405);
  EXPECT_NE(head.fields.at("content-length"), "0");
  EXPECT_EQ(client.response().body, R"({"status":"ok"})");
}

TEST_F(Serving, ChunkExtensionsAndTrailersThatNeverEndAreRefused) {
  for (const std::string chunk : {"2;", "0\r\nX: "}) {
    HttpClient client(port());
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
                "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
                chunk + std::string(1U << 20U, 'x'));
    EXPECT_EQ(client.response().status, 400) << chunk;
  }
  EXPECT_EQ(http(port(), "GET", "/health", "", "").status, 200);
}

TEST_F(Serving, RefusesWhatItCannotAnswerAndGoesOn) {
  struct Case {
    std::string method, path, body;
    int status;
    std::string param, part;
    std::string fields = "Content-Type: application/json; charset=utf-8\r\n";
  };
  const std::string chat = "/v1/chat/completions", text = "/v1/completions";
  const std::string long_prompt = json({{"prompt", std::string(200, 'a')}}).dump();
  for (const Case& c : std::initializer_list<Case>{
           {"GET", "/v2", "", 404, "", "there is no path '/v2'"},
           {"GET", chat, "", 405, "", "takes POST"},
           {"POST", "/health", "{}", 405, "", "takes GET"},
           {"POST", chat, "{}", 415, "", "application/json", "Content-Type: text/plain\r\n"},
           {"POST", chat, "{", 400, "", "not JSON"},
           {"POST", chat, R"({"messages":[{"role":"user"}]})", 400, "messages[0].content",
            "is missing"},
           {"POST", text, R"({"prompt":"a","model":"big"})", 404, "model",
            "this server has 'small'"},
           {"GET", "/v1/models/big%21", "", 404, "model", "'big!'"},
           {"POST", text, R"({"prompt":""})", 400, "prompt", "has no tokens"},
           {"POST", text, long_prompt, 400, "prompt", "has 200 tokens, the context holds 128"},
           {"POST", text, R"({"prompt":[99]})", 400, "prompt",
            "has token 99, the vocabulary has 64"},
           {"POST", text, R"({"prompt":"a","n":17})", 400, "n", "it must be 1 to 16"}}) {
    const HttpResponse r = http(port(), c.method, c.path, c.body, c.fields);
    EXPECT_EQ(r.status, c.status) << c.path << c.body;
    const json error = json::parse(r.body)["error"];
    EXPECT_EQ(error["param"].is_null() ? "" : error["param"].get<std::string>(), c.param) << r.body;
    test::expect_contains(error["message"], c.part);
    EXPECT_EQ(error["type"], "invalid_request_error");
    if (c.status == 405) {
      EXPECT_EQ(r.fields.at("allow"), c.method == "GET" ? "POST" : "GET");
    }
  }
  EXPECT_EQ(http(port(), "POST", text, std::string(30000, ' ')).status, 413);
  EXPECT_EQ(http(port(), "GET", "/health", "", "X: " + std::string(40000, 'x') + "\r\n").status,
            431);
  HttpClient noise(port());
  noise.send("this is not HTTP\r\n\r\n");
  EXPECT_EQ(noise.response().status, 400);
  EXPECT_EQ(http(port(), "GET", "/health", "", "").status, 200);
}

TEST(Server, AsksForItsKey) {
  const auto s = server({.api_key = "secret"}, 1);
  const auto status = [&](const std::string& path, const std::string& fields) {
    return http(s->port(), "GET", path, "", fields).status;
  };
  EXPECT_EQ(status("/v1/models", ""), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secre\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secret1\r\n"), 401);
  EXPECT_EQ(status("/v1/models", "Authorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status("/health", ""), 200);
}

/// The status of a request whose field Host is `host`.
int status_of_host(std::uint16_t port, const std::string& host, const std::string& more = {}) {
  HttpClient client(port);
  client.send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n" + more + "\r\n");
  return client.response().status;
}

TEST_F(Serving, AnswersNoNameThatAPageMadeToMeanThisMachine) {
  for (const char* host :
       {"localhost", "LocalHost:8080", "127.0.0.1:1", "10.1.2.3", "[::1]", "[::1]:8080", ""})
    EXPECT_EQ(status_of_host(port(), host), 200) << host;
  for (const char* host : {"evil.example", "evil.example:8080", "localhost.evil.example",
                           "127.0.0.1.evil.example", "[localhost]", "[", "[]", ":"})
    EXPECT_EQ(status_of_host(port(), host), 421) << host;
  // A page does not know the key, and others than this machine have names.
  const auto keyed = server({.api_key = "secret"}, 1), open = server({.host = "0.0.0.0"}, 1);
  EXPECT_EQ(status_of_host(keyed->port(), "my.example", "Authorization: Bearer secret\r\n"), 200);
  EXPECT_EQ(status_of_host(open->port(), "my.example"), 200);
}

/// A job that its engine holds until `go`: what comes then waits.
TEST(Engine, TakesAsManyJobsAsItHasRoomFor) {
  Metrics metrics;
  std::latch go(1), all(3);
  Engine engine(ServedModel(LanguageModel::load(folder().path(), {.sequences = 2})),
                Tokenizer::load(folder().path()), 1, 600, metrics);
  const auto job = [] {
    return Job{.prompt = {8, 9}, .options = {.max_new = 2, .stop = std::vector<int>{}}};
  };
  const auto receive = [&](const Part& part) {
    go.wait();
    if (part.finish != nullptr)
      all.count_down();
  };
  EXPECT_TRUE(engine.submit(job(), receive).has_value());
  EXPECT_TRUE(engine.submit(job(), receive).has_value());
  EXPECT_TRUE(engine.submit(job(), receive).has_value());
  EXPECT_FALSE(engine.submit(job(), receive).has_value());
  go.count_down();
  all.wait();
}

/// Jobs that find no blocks wait, as those that find no sequence do.
TEST(Engine, JobsWaitForBlocksOfTheCache) {
  Metrics metrics;
  LanguageModel model = LanguageModel::load(folder().path(), {.context = 128});
  const std::int64_t of_block = model.cache_bytes() / model.cache_blocks().all;
  std::latch all(6);
  {
    Engine engine(
        ServedModel(LanguageModel::load(
            folder().path(), {.context = 128, .sequences = 4, .cache_bytes = 3 * of_block})),
        Tokenizer::load(folder().path()), 2, 600, metrics);
    for (int i = 0; i < 6; ++i) {
      Job job{.prompt = std::vector<int>(33, 8 + i),
              .options = {.max_new = 4, .stop = std::vector<int>{}}};
      EXPECT_TRUE(engine
                      .submit(std::move(job),
                              [&](const Part& part) {
                                EXPECT_EQ(part.failed, 0) << part.error;
                                if (part.finish != nullptr) {
                                  EXPECT_EQ(part.usage.written, 4U);
                                  all.count_down();
                                }
                              })
                      .has_value());
    }
    all.wait();
    std::promise<Part> refused; // one that no waiting helps
    Job job{.prompt = std::vector<int>(100, 8), .options = {.max_new = 1}};
    (void)engine.submit(std::move(job), [&](const Part& part) { refused.set_value(part); });
    const Part part = refused.get_future().get();
    EXPECT_EQ(part.failed, 400);
    test::expect_contains(part.error, "100 tokens need 4 blocks of 32 positions, the cache has 3");
  }
  const std::string text = metrics.text();
  test::expect_contains(text, "egret_cache_blocks_used 0\n");
  test::expect_contains(text, "egret_cache_blocks_free 3\n");
}

TEST(Engine, EndsJobsThatTakeTooLong) {
  Metrics metrics;
  Engine engine(ServedModel(LanguageModel::load(folder().path(), {.context = 4096})),
                Tokenizer::load(folder().path()), 1, 1e-9, metrics);
  std::promise<int> failed;
  Job job{.prompt = {8, 9}, .options = {.max_new = 4000, .stop = std::vector<int>{}}};
  (void)engine.submit(std::move(job), [&](const Part& part) {
    if (part.failed != 0)
      failed.set_value(part.failed);
  });
  EXPECT_EQ(failed.get_future().get(), 504);
}

/// Holds an engine's thread, from a job's first part on, until it is opened.
class Gate {
public:
  void pass() { // the engine's thread
    held_ = true;
    held_.notify_all();
    open_.wait(false);
  }
  void await() { held_.wait(false); } ///< until the thread is held
  void open() {
    open_ = true;
    open_.notify_all();
  }

private:
  std::atomic<bool> held_ = false, open_ = false;
};

/// What a job came to.
struct Outcome {
  std::string text, finish, error;
  int failed = 0;
};

/// Submits a job and gathers its parts.
std::future<Outcome> outcome_of(Engine& engine, Job job, Gate* gate = nullptr) {
  auto promise = std::make_shared<std::promise<Outcome>>();
  auto so_far = std::make_shared<Outcome>();
  EXPECT_TRUE(engine
                  .submit(std::move(job),
                          [promise, so_far, gate](const Part& part) {
                            if (gate != nullptr)
                              gate->pass();
                            so_far->text += part.text;
                            so_far->failed = part.failed;
                            so_far->error = part.error;
                            if (part.finish != nullptr)
                              so_far->finish = part.finish;
                            if (part.last)
                              promise->set_value(*so_far);
                          })
                  .has_value());
  return promise->get_future();
}

Job job_of(std::vector<int> prompt, std::int64_t most) {
  return {.prompt = std::move(prompt), .options = {.max_new = most, .stop = std::vector<int>{}}};
}

/// Memory is short for a while: the jobs that the model ran for then fail, give their blocks back,
/// and the engine goes on as before.
TEST(Engine, AFailedStepFailsItsJobsAlone) {
  Metrics metrics;
  Gate gate;
  Engine engine(ServedModel(LanguageModel::load(folder().path(), {.context = 128, .sequences = 4})),
                Tokenizer::load(folder().path()), 8, 600, metrics);
  const std::vector<int> prompt = {8, 9, 10, 11};
  const Outcome before = outcome_of(engine, job_of(prompt, 20)).get();
  ASSERT_EQ(before.failed, 0) << before.error;
  std::future<Outcome> running = outcome_of(engine, job_of({20, 21, 22}, 60), &gate);
  std::future<Outcome> reading = outcome_of(engine, job_of(std::vector<int>(90, 12), 20));
  gate.await();
  {
    const test::MemoryShortage shortage;
    gate.open();
    for (std::future<Outcome>* one : {&running, &reading}) {
      const Outcome outcome = one->get();
      EXPECT_EQ(outcome.failed, 500) << outcome.text;
      test::expect_contains(outcome.error, "limit");
    }
  }
  const Outcome after = outcome_of(engine, job_of(prompt, 20)).get();
  EXPECT_EQ(after.failed, 0) << after.error;
  EXPECT_EQ(after.text, before.text);
  while (metrics.text().find("egret_requests_running 0\n") == std::string::npos)
    std::this_thread::yield();
  test::expect_contains(metrics.text(), "egret_cache_blocks_used 0\n");
  test::expect_contains(metrics.text(), "egret_requests_waiting 0\n");
}

/// A tokenizer whose decoder gives up on one token: the job that writes it fails, another goes on.
TEST(Engine, ATextThatCannotBeDecodedFailsItsJobAlone) {
  const std::string nines = std::string(60, '9') + "b";
  json tokenizer = test::small_tokenizer();
  json& vocabulary = tokenizer["model"]["vocab"];
  std::string last; // the token that gives way
  for (const auto& [name, id] : vocabulary.items())
    if (id == 63)
      last = name;
  vocabulary.erase(last);
  vocabulary[nines] = 63;
  const auto made = [](const json& text) {
    test::TempFolder other;
    test::write_json(other / "tokenizer.json", text);
    return Tokenizer::load(other.path());
  };
  const TokenTexts texts(made(tokenizer));
  tokenizer["decoder"] = {
      {"type", "Sequence"},
      {"decoders",
       {tokenizer["decoder"],
        {{"type", "Replace"}, {"pattern", {{"Regex", "(9|99)+$"}}}, {"content", "nines"}}}}};
  const Tokenizer broken = made(tokenizer);
  Metrics metrics;
  Engine engine(ServedModel(LanguageModel::load(folder().path(), {.context = 128, .sequences = 4})),
                broken, 8, 600, metrics);
  Job bad = job_of({8, 9}, 8), good = job_of({8, 9, 10}, 40);
  bad.options.grammar =
      std::make_shared<const TokenGrammar>(Grammar::parse("root ::= \"" + nines + "\""), texts);
  good.options.grammar =
      std::make_shared<const TokenGrammar>(Grammar::parse("root ::= [a-h]{40}"), texts);
  std::future<Outcome> going = outcome_of(engine, std::move(good));
  const Outcome failed = outcome_of(engine, std::move(bad)).get();
  EXPECT_EQ(failed.failed, 500);
  const Outcome whole = going.get();
  EXPECT_EQ(whole.failed, 0) << whole.error;
  EXPECT_EQ(whole.text.size(), 40U);
}

json endless() { // as long as the context allows
  return {
      {"prompt", "ab"}, {"max_tokens", 4000}, {"stream", true}, {"temperature", 1}, {"top_k", 0}};
}

TEST(Server, ForgetsRequestsOfClientsThatLeave) {
  const auto s = server({}, 1, 4096);
  const auto cancelled = [&] {
    return http(s->port(), "GET", "/metrics", "", "")
               .body.find("egret_requests_cancelled_total 0\n") == std::string::npos;
  };
  for (int i = 0; i < 100 && !cancelled(); ++i) { // a text may end by itself first
    HttpClient client(s->port());
    client.request("POST", "/v1/completions", endless().dump());
    (void)client.head();
    (void)client.next_chunk();
  }
  EXPECT_TRUE(cancelled());
  EXPECT_EQ(http(s->port(), "POST", "/v1/completions", R"({"prompt":"a"})").status, 200);
}

TEST(Server, SaysTooManyRequests) {
  const auto s = server({.queue = 0}, 1, 4096);
  for (int i = 0; i < 100; ++i) { // the first text may have ended before the second request came
    HttpClient first(s->port());
    first.request("POST", "/v1/completions", endless().dump());
    if (first.head().status != 200)
      continue; // the one before is not forgotten yet
    const HttpResponse r = http(s->port(), "POST", "/v1/completions", R"({"prompt":"a"})");
    if (r.status != 429)
      continue;
    EXPECT_EQ(r.fields.at("retry-after"), "1");
    EXPECT_EQ(json::parse(r.body)["error"]["type"], "rate_limit_error");
    return;
  }
  ADD_FAILURE() << "never";
}

TEST(Server, AnswersWhatIsUnderWayBeforeItEnds) {
  const auto s = server({}, 1);
  const std::uint16_t port = s->port();
  HttpClient idle(port), client(port);
  client.request("POST", "/v1/completions",
                 R"({"prompt":"ab","max_tokens":100,"stream":true,"temperature":1,"seed":3})");
  EXPECT_EQ(client.head().status, 200);
  std::thread stopping([&] { s->stop(600); });
  std::string body;
  for (std::string chunk = client.next_chunk(); !chunk.empty(); chunk = client.next_chunk())
    body += chunk;
  EXPECT_TRUE(body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(client.ended());
  EXPECT_TRUE(idle.ended());
  stopping.join();
  EXPECT_THROW(HttpClient{port}, std::runtime_error);
}

TEST(Server, RefusesAddressesThatItCannotHave) {
  const auto s = server({}, 1);
  const auto refused = [&](ErrorKind kind, ServeOptions options) {
    return test::error_of(kind, [&] { (void)server(options, 1); });
  };
  test::expect_contains(refused(ErrorKind::State, {.port = s->port()}),
                        "cannot listen on 127.0.0.1 port");
  test::expect_contains(refused(ErrorKind::Value, {.host = "here"}), "'here' is not an address");
  test::expect_contains(refused(ErrorKind::Value, {.connections = 0}), "connections is 0");
  test::expect_contains(refused(ErrorKind::Value, {.client_seconds = 0}), "client_seconds is 0");
}

TEST(ServeCommand, ServesUntilItIsInterrupted) {
  const std::string model = folder().path().string();
  test::ServeProcess serve(EGRET_TEST_TOOL, {"--model", model, "--name", "mine"});
  const HttpResponse r =
      http(serve.port(), "POST", "/v1/chat/completions",
           R"({"model":"mine","messages":[{"role":"user","content":"a"}],"max_tokens":4})");
  EXPECT_EQ(r.status, 200) << r.body;
  EXPECT_TRUE(serve.interrupt()) << serve.said();

  const test::Ran no_key =
      test::egret_command("serve --model " + model + " --api-key-file " + model + "/errx");
  EXPECT_EQ(no_key.code, 1);
  test::expect_contains(no_key.err, "errx");
}

TEST(ServeCommand, RefusesBeforeItReadsWeights) {
  const auto other = server({}, 1);
  test::TempFolder broken; // has no weights: whoever reads them says so
  test::write_json(broken / "tokenizer.json", test::small_tokenizer());
  test::write_json(broken / "tokenizer_config.json", {{"chat_template", "{% if %}"}});
  const std::string model = broken.path().string();
  const auto refused = [&](const std::string& options) {
    const test::Ran ran = test::egret_command("serve --model " + model + " " + options);
    EXPECT_EQ(ran.code, 1);
    return ran.err;
  };
  test::expect_contains(refused(fmt::format("--port {}", other->port())), "cannot listen on");
  test::expect_contains(refused("--host here"), "'here' is not an address");
  test::expect_contains(refused("--port 0 --name mine"), "mine: chat template");
}

} // namespace
} // namespace egret::serve

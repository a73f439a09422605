#include "support/serve_load.h"

#include "support/http_client.h"
#include "support/scale.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>

namespace egret::test {

namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostFaults = 20;
/// A server that has not ended what nobody waits for any more by then never will.
constexpr auto kMostWait = std::chrono::minutes(5);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

[[noreturn]] void fault(const std::string& what, const std::string& answer) {
  throw std::runtime_error(what + ": " + answer.substr(0, 600));
}

void require(bool held, const char* what, const std::string& answer) {
  if (!held)
    fault(what, answer);
}

/// A text of an answer.
struct Text {
  std::string text, finish;
};

struct Answer {
  std::map<std::size_t, Text> texts;
  json usage;
};

void add_choice(Answer& answer, const json& choice, const std::string& more, bool whole,
                const std::string& all) {
  Text& text = answer.texts[choice.at("index").get<std::size_t>()];
  require(text.finish.empty(), "something follows the end of a text", all);
  text.text += more;
  const json& finish = choice.at("finish_reason");
  require(!whole || finish.is_string(), "no finish_reason", all);
  if (finish.is_string())
    text.finish = finish.get<std::string>();
}

void require_frame(const json& answer, const char* object, const std::string& all) {
  require(answer.at("object") == object, "another object", all);
  require(answer.at("id").is_string() && answer.at("created").is_number_integer() &&
              answer.at("model").is_string(),
          "no id, time or model", all);
}

/// What an answer must be whatever its text says.
void require_whole(const LoadRequest& request, const Answer& answer, const std::string& all) {
  const std::size_t n = request.body.value("n", std::size_t{1});
  require(answer.texts.size() == n && answer.texts.rbegin()->first == n - 1,
          "another number of texts", all);
  for (const auto& [index, text] : answer.texts)
    require(text.finish == "stop" || text.finish == "length", "another finish_reason", all);
  const auto prompt = answer.usage.at("prompt_tokens").get<std::size_t>(),
             written = answer.usage.at("completion_tokens").get<std::size_t>();
  require(answer.usage.at("total_tokens") == prompt + written, "usage does not add up", all);
  require(written <= n * request.body.at("max_tokens").get<std::size_t>(), "too many tokens", all);
  require(!request.prompt || prompt == *request.prompt, "another prompt", all);
  require(answer.usage.at("prompt_tokens_details").at("cached_tokens") <= prompt,
          "more of the prompt was cached than there is", all);
  require(!request.text || answer.texts.at(0).text == *request.text, "another text", all);
}

const char* path_of(const LoadRequest& request) {
  return request.chat ? "/v1/chat/completions" : "/v1/completions";
}

/// A client: a thread with a connection that it keeps while it can.
class Client {
public:
  Client(std::uint16_t port, const LoadDraws& draws, std::span<const LoadRequest> known,
         const LoadOptions& options, std::uint64_t seed)
      : port_(port), known_(known), options_(options), requests_(draws, seed) {}

  void run(Clock::time_point start) {
    for (int i = 0; more(i, start); ++i) {
      const LoadRequest request = !known_.empty() && chance(options_.known)
                                      ? known_[requests_.below(known_.size())]
                                      : requests_.next();
      try {
        if (chance(options_.leaving))
          leave(request);
        else
          ask(request);
      } catch (const std::exception& error) {
        if (report.faults.size() < kMostFaults)
          report.faults.push_back(request.body.dump().substr(0, 300) + "\n  " + error.what());
        connection_.reset();
      }
    }
  }

  LoadReport report;

private:
  bool more(int done, Clock::time_point start) const {
    return options_.requests > 0 ? done < options_.requests
                                 : seconds_since(start) < options_.seconds;
  }
  bool chance(double of) { return static_cast<double>(requests_.below(1U << 20U)) < of * 0x1p20; }

  HttpClient& connection() {
    if (!connection_)
      connection_ = std::make_unique<HttpClient>(port_);
    return *connection_;
  }

  /// Asks until there is room, and checks the answer.
  void ask(const LoadRequest& request) {
    for (;;) {
      const Clock::time_point asked = Clock::now();
      connection().request("POST", path_of(request), request.body.dump());
      const HttpResponse head = connection().head();
      if (head.status == 429) {
        (void)connection().body(head);
        require(head.fields.contains("retry-after"), "429 without Retry-After", "");
        ++report.refused;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        continue;
      }
      if (head.status != 200)
        fault(fmt::format("status {}", head.status), connection().body(head));
      const Answer answer =
          request.body.at("stream") ? streamed(request, head, asked) : whole(request, head);
      ++report.answered;
      report.checked += request.text.has_value();
      report.tokens += answer.usage.at("completion_tokens").get<std::size_t>();
      return;
    }
  }

  Answer whole(const LoadRequest& request, const HttpResponse& head) {
    const std::string body = connection().body(head);
    const json parsed = json::parse(body);
    require_frame(parsed, request.chat ? "chat.completion" : "text_completion", body);
    Answer answer;
    for (const json& choice : parsed.at("choices"))
      add_choice(answer, choice,
                 request.chat ? choice.at("message").at("content").get<std::string>()
                              : choice.at("text").get<std::string>(),
                 true, body);
    answer.usage = parsed.at("usage");
    require_whole(request, answer, body);
    return answer;
  }

  Answer streamed(const LoadRequest& request, const HttpResponse& head, Clock::time_point asked) {
    require(head.fields.contains("transfer-encoding"), "a stream that is not chunked", "");
    Answer answer;
    std::string all, held, id;
    bool done = false;
    Clock::time_point last = asked;
    bool first = true;
    const auto event = [&](const std::string& line) {
      require(!done, "an event behind [DONE]", all);
      require(line.starts_with("data: "), "not an event", all);
      if (line == "data: [DONE]") {
        done = true;
        return;
      }
      const json parsed = json::parse(line.substr(6));
      require(!parsed.contains("error"), "an error within a stream", all);
      require_frame(parsed, request.chat ? "chat.completion.chunk" : "text_completion", all);
      require(id.empty() || parsed.at("id") == id, "another id", all);
      id = parsed.at("id");
      bool text = false;
      for (const json& choice : parsed.at("choices")) {
        const std::string more = request.chat ? choice.at("delta").value("content", "")
                                              : choice.at("text").get<std::string>();
        text = text || !more.empty();
        add_choice(answer, choice, more, false, all);
      }
      if (parsed.contains("usage") && !parsed.at("usage").is_null())
        answer.usage = parsed.at("usage");
      if (text) {
        (first ? report.first : report.between).push_back(seconds_since(last));
        last = Clock::now();
        first = false;
      }
    };
    for (std::string chunk = connection().next_chunk(); !chunk.empty();
         chunk = connection().next_chunk()) {
      all += chunk;
      held += chunk;
      for (std::size_t end = 0; (end = held.find("\n\n")) != std::string::npos;
           held.erase(0, end + 2))
        event(held.substr(0, end));
    }
    require(done && held.empty(), "a stream without [DONE]", all);
    require_whole(request, answer, all);
    return answer;
  }

  /// Closes the connection within the request, before the answer or within it, in order or by a
  /// reset.
  void leave(const LoadRequest& request) {
    const std::string body = request.body.dump();
    const std::size_t how = requests_.below(4), parts = requests_.below(8);
    const bool resets = requests_.below(2) == 0;
    if (how == 0) {
      connection().send(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
                                    "application/json\r\nContent-Length: {}\r\n\r\n{}",
                                    path_of(request), body.size(),
                                    body.substr(0, body.size() / 2)));
    } else {
      connection().request("POST", path_of(request), body);
      if (how > 1) {
        const HttpResponse head = connection().head();
        if (head.status == 200 && head.fields.contains("transfer-encoding"))
          for (std::size_t i = 0; i < parts && !connection().next_chunk().empty(); ++i) {
          }
      }
    }
    if (resets)
      connection().reset_at_close();
    connection_.reset();
    ++report.left;
  }

  std::uint16_t port_;
  std::span<const LoadRequest> known_;
  const LoadOptions& options_;
  LoadRequests requests_;
  std::unique_ptr<HttpClient> connection_;
};

/// A request in bytes, as a client process sends it.
std::string bytes_of(const LoadRequest& request) {
  const std::string body = request.body.dump();
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: {}\r\n\r\n{}",
                     path_of(request), body.size(), body);
}

/// What a client process does until it is killed: it opens connections, asks on each and reads one
/// byte of the last answer. Only system calls: the process is forked from threads.
[[noreturn]] void ask_until_killed(const sockaddr_in& server, std::span<const std::string> all) {
  close_range(3, ~0U, 0); // the other clients' connections are theirs alone
  for (const std::string& bytes : all) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    char byte = 0;
    if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&server), sizeof(server)) == 0 &&
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0 && &bytes == &all.back())
      (void)recv(fd, &byte, 1, 0);
  }
  for (;;)
    pause();
}

/// Starts client processes, one behind the other, and kills each within its requests.
std::size_t kill_clients(std::uint16_t port, LoadRequests requests, const std::atomic<bool>& done) {
  constexpr std::size_t kConnections = 4;
  const sockaddr_in server = {.sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)},
                              .sin_zero = {}};
  std::size_t killed = 0;
  for (; !done || killed == 0; ++killed) {
    std::vector<std::string> all;
    for (std::size_t i = 0; i < kConnections; ++i)
      all.push_back(bytes_of(requests.next()));
    const auto time = std::chrono::milliseconds(1 + requests.below(250));
    const pid_t child = fork();
    if (child == 0)
      ask_until_killed(server, all);
    if (child < 0)
      throw std::runtime_error("cannot fork");
    std::this_thread::sleep_for(time);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
  }
  return killed;
}

double percentile(std::vector<double>& values, double p) {
  if (values.empty())
    return 0;
  const auto at =
      values.begin() + static_cast<std::ptrdiff_t>(p * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

/// Waits until the server has noticed the last clients that left, then asks what it still holds.
void check_metrics(std::uint16_t port, std::vector<std::string>& faults) {
  const Clock::time_point start = Clock::now();
  const auto busy = [&] {
    return metric_of(port, "egret_requests_running").value_or(1) +
           metric_of(port, "egret_requests_waiting").value_or(1);
  };
  while (busy() > 0 && Clock::now() - start < kMostWait * scale())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (const char* name :
       {"egret_requests_running", "egret_requests_waiting", "egret_cache_blocks_used",
        "egret_cache_blocks_shared", "egret_internal_errors_total"}) {
    const std::optional<double> value = metric_of(port, name);
    if (value != 0)
      faults.push_back(value ? fmt::format("{} is {} in the end", name, *value)
                             : fmt::format("there is no {}", name));
  }
}

} // namespace

LoadRequests::LoadRequests(LoadDraws draws, std::uint64_t seed) : draws_(std::move(draws)) {
  for (std::size_t i = 0; i < draws_.prefixes; ++i) { // the same for every seed
    random_.seed(i + 1);
    prefixes_.push_back(ids(1 + below(draws_.context / 2)));
  }
  random_.seed(seed);
}

std::vector<int> LoadRequests::ids(std::size_t count) {
  std::vector<int> all;
  while (all.size() < count)
    all.push_back(draws_.first_token + static_cast<int>(below(static_cast<std::size_t>(
                                           draws_.vocabulary - draws_.first_token))));
  return all;
}

LoadRequest LoadRequests::next() {
  const std::size_t quarter = std::max<std::size_t>(draws_.context / 4, 1);
  std::vector<int> prompt;
  if (!prefixes_.empty() && below(4) > 0) { // all of a beginning that is shared, or some
    const std::vector<int>& prefix = prefixes_[below(prefixes_.size())];
    const std::size_t n = below(2) == 0 ? prefix.size() : 1 + below(prefix.size());
    prompt.assign(prefix.begin(), prefix.begin() + static_cast<std::ptrdiff_t>(n));
  }
  const std::vector<int> tail = ids(1 + below(quarter));
  prompt.insert(prompt.end(), tail.begin(), tail.end());
  LoadRequest request{.chat = below(2) == 0};
  request.body = {{"max_tokens", 1 + below(quarter)},
                  {"stream", below(2) == 0},
                  {"temperature", below(2)},
                  {"seed", below(1U << 30U)}};
  if (request.body["stream"])
    request.body["stream_options"] = {{"include_usage", true}};
  if (below(8) == 0)
    request.body["n"] = 2;
  if (request.chat) {
    std::string text;
    for (const int id : prompt) // some tokens stay for the template's own
      if (text.size() < draws_.context / 2)
        text += draws_.letters[static_cast<std::size_t>(id) % draws_.letters.size()];
    request.body["messages"] = {{{"role", "user"}, {"content", text}}};
  } else {
    request.prompt = prompt.size();
    request.body["prompt"] = std::move(prompt);
  }
  return request;
}

namespace {

/// What the model writes greedily, if it is as many tokens as were asked for and each is ahead of
/// the second by more than rounding.
std::optional<std::vector<int>> clear_text(models::LanguageModel& model,
                                           const std::vector<int>& prompt, std::int64_t most,
                                           const std::vector<int>& stop) {
  constexpr float kAhead = 0.02F;
  models::GenerationBatch batch(model);
  (void)batch.add(prompt, {.max_new = most, .stop = stop, .top_logprobs = 2});
  std::vector<int> tokens;
  while (batch.running() + batch.waiting() > 0)
    for (const models::GenerationBatch::Event& event : batch.step()) {
      if (!event.token)
        return {};
      const auto& top = event.logprobs.value().top;
      if (top.at(0).value - top.at(1).value < kAhead)
        return {};
      tokens.push_back(*event.token);
    }
  return tokens;
}

} // namespace

std::vector<LoadRequest> known_requests(models::LanguageModel& model, const Tokenizer& tokenizer,
                                        std::uint16_t port, const LoadDraws& draws,
                                        std::uint64_t seed, std::size_t count) {
  std::vector<int> stop = model.config().stop;
  if (const auto end = tokenizer.special_id("eos_token"))
    stop.push_back(*end);
  LoadRequests requests(draws, seed);
  std::vector<LoadRequest> known;
  for (std::size_t tries = 0; known.size() < count && tries < 50 * count; ++tries) {
    LoadRequest request = requests.next();
    request.body["temperature"] = 0;
    request.body.erase("n");
    std::vector<int> prompt;
    if (request.chat) {
      const json asked = {{"messages", request.body["messages"]}};
      prompt = json::parse(http(port, "POST", "/tokenize", asked.dump()).body)
                   .at("tokens")
                   .get<std::vector<int>>();
    } else {
      prompt = request.body["prompt"].get<std::vector<int>>();
    }
    const auto tokens =
        clear_text(model, prompt, request.body["max_tokens"].get<std::int64_t>(), stop);
    if (!tokens)
      continue;
    request.prompt = prompt.size();
    request.text = tokenizer.decode(*tokens);
    known.push_back(std::move(request));
  }
  return known;
}

std::string LoadReport::text() const {
  std::vector<double> f = first, b = between;
  const auto ms = [](double s) { return fmt::format("{:.1f} ms", 1e3 * s); };
  std::string out = fmt::format(
      "{} answers ({} of a known text), {} left, {} times 429, {} clients killed, in {:.1f} s: "
      "{:.1f} answers/s, {:.0f} tokens/s\n"
      "first token p50 {}, p99 {}; between tokens p50 {}, p99 {}\n{} faults\n",
      answered, checked, left, refused, killed, seconds, static_cast<double>(answered) / seconds,
      static_cast<double>(tokens) / seconds, ms(percentile(f, 0.5)), ms(percentile(f, 0.99)),
      ms(percentile(b, 0.5)), ms(percentile(b, 0.99)), faults.size());
  for (std::size_t i = 0; i < faults.size() && i < kMostFaults; ++i)
    out += faults[i] + "\n";
  return out;
}

LoadReport load_server(std::uint16_t port, const LoadDraws& draws,
                       std::span<const LoadRequest> known, const LoadOptions& options) {
  const Clock::time_point start = Clock::now();
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < options.clients; ++i)
    clients.push_back(std::make_unique<Client>(
        port, draws, known, options, options.seed * 10007 + static_cast<std::uint64_t>(i)));
  LoadReport all;
  std::vector<std::size_t> killed(static_cast<std::size_t>(options.killed));
  {
    std::atomic<bool> done = false;
    std::vector<std::jthread> killers, threads;
    for (std::size_t i = 0; i < killed.size(); ++i)
      killers.emplace_back(
          [&, i] { killed[i] = kill_clients(port, LoadRequests(draws, ~options.seed - i), done); });
    for (const auto& client : clients)
      threads.emplace_back([&client = *client, start] { client.run(start); });
    threads.clear(); // they are joined
    done = true;
  }
  for (const std::size_t count : killed)
    all.killed += count;
  all.seconds = seconds_since(start);
  for (const auto& client : clients) {
    const LoadReport& one = client->report;
    all.answered += one.answered;
    all.left += one.left;
    all.refused += one.refused;
    all.checked += one.checked;
    all.tokens += one.tokens;
    all.first.insert(all.first.end(), one.first.begin(), one.first.end());
    all.between.insert(all.between.end(), one.between.begin(), one.between.end());
    all.faults.insert(all.faults.end(), one.faults.begin(), one.faults.end());
  }
  clients.clear();
  try {
    check_metrics(port, all.faults);
  } catch (const std::exception& error) {
    all.faults.push_back(std::string("/metrics: ") + error.what());
  }
  return all;
}

std::optional<double> metric_of(std::uint16_t port, const std::string& name) {
  const std::string text = http(port, "GET", "/metrics", "", "").body;
  const std::size_t at = text.find("\n" + name + " ");
  if (at == std::string::npos)
    return {};
  return std::stod(text.substr(at + name.size() + 2));
}

} // namespace egret::test

#include "serve/engine.h"

#include "egret/error.h"
#include "serve/stop_strings.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace egret::serve {

namespace {

using Clock = std::chrono::steady_clock;
using models::GenerationBatch;
using models::StopReason;

/// Between the seeds of a job's texts: 2^64 over the golden ratio.
constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15U;

constexpr const char* kTooLong = "the request took longer than the server allows";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A job under way.
struct Running {
  Engine::Receive receive;
  Clock::time_point came;
  std::size_t texts; ///< that have not ended
  Usage usage;
};

/// A text of a job.
struct Writing {
  Engine::Id job;
  std::size_t choice;
  StreamingDetokenizer detokenizer;
  StopStrings stop;
  ToolCallReader calls;
  Clock::time_point last;
  bool one_call;
  std::size_t written = 0;    ///< tokens
  std::size_t characters = 0; ///< of those
};

struct Submitted {
  Engine::Id id;
  Job job;
  Engine::Receive receive;
  Clock::time_point came;
};

/// Texts that become embeddings, one after the other.
struct Embedding {
  std::vector<std::vector<int>> texts;
  std::function<void(Embeddings)> receive;
  Clock::time_point came;
  Embeddings done;
};

} // namespace

struct Engine::Impl {
  Impl(ServedModel loaded, Tokenizer text, std::size_t queue, double seconds, Metrics& all)
      : model(std::move(loaded)), tokenizer(std::move(text)),
        most(static_cast<std::size_t>(model.sequences()) + queue), job_seconds(seconds),
        metrics(all), batch(batch_of(model)), thread([this] { work(); }) {}

  static std::optional<GenerationBatch> batch_of(ServedModel& model) {
    if (models::LanguageModel* language = model.language())
      return std::optional<GenerationBatch>(std::in_place, *language);
    return {};
  }

  void report_load() {
    metrics.load(batch ? batch->running() : 0, batch ? batch->waiting() : 0);
    if (batch)
      metrics.cache(model.language()->cache_blocks(), batch->preempted());
  }

  /// The thread: takes what has come, then a step of the model.
  void work() {
    report_load();
    for (;;) {
      std::vector<Submitted> fresh;
      std::map<Id, Embedding> fresh_embeddings;
      std::vector<Id> leaving;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] {
          return stopping || !submitted.empty() || !cancelled.empty() || !writing.empty() ||
                 !embeddings_submitted.empty() || !embeddings.empty();
        });
        if (stopping)
          return;
        fresh.swap(submitted);
        fresh_embeddings.swap(embeddings_submitted);
        leaving.swap(cancelled);
      }
      for (Submitted& one : fresh)
        begin(std::move(one));
      embeddings.merge(fresh_embeddings);
      for (const Id job : leaving)
        drop(job);
      end_late_jobs();
      for (const GenerationBatch::Event& event : step())
        handle(event);
      embed_one();
      report_load();
    }
  }

  /// A step of the model. What fails within it for some texts is among the events.
  std::vector<GenerationBatch::Event> step() {
    if (!batch)
      return {};
    try {
      return batch->step();
    } catch (const std::exception& error) { // nobody knows what the batch holds: all end
      while (!jobs.empty())
        fail(jobs.begin()->first, 500, error.what());
      return {};
    }
  }

  void begin(Submitted one) {
    Job& job = one.job;
    jobs.emplace(
        one.id,
        Running{std::move(one.receive), one.came, job.choices, {.prompt = job.prompt.size()}});
    try {
      for (std::size_t i = 0; i < job.choices; ++i) {
        models::GenerateOptions options = job.options;
        options.seed += i * kSeedStep;
        const GenerationBatch::Id id = batch->add(job.prompt, options);
        writing.emplace(id,
                        Writing{one.id, i, StreamingDetokenizer(tokenizer), StopStrings(job.stop),
                                ToolCallReader(job.tools, job.tool_names), one.came, job.one_call});
      }
    } catch (const std::exception& error) {
      fail(one.id, 400, error.what());
    }
  }

  void handle(const GenerationBatch::Event& event) {
    const auto at = writing.find(event.id);
    if (at == writing.end()) // its time ended, or a stop string came, in this step
      return;
    const Id job = at->second.job;
    try {
      if (event.error.empty())
        tell(event, at->second);
      else
        fail(job, 500, event.error);
    } catch (const std::exception& error) { // the tokenizer cannot decode it, say
      fail(job, 500, error.what());
    }
  }

  /// Tells a job what a text of it has become.
  void tell(const GenerationBatch::Event& event, Writing& text) {
    Running& job = jobs.at(text.job);
    Part part{.choice = text.choice};
    job.usage.reused = std::max(job.usage.reused, event.reused);
    std::string more;
    if (event.token) {
      ++job.usage.written;
      if (text.written++ == 0)
        metrics.first_token(seconds_since(job.came));
      else
        metrics.next_token(seconds_since(text.last));
      text.last = Clock::now();
      more = text.stop.push(text.detokenizer.push(*event.token));
      if (event.logprobs)
        part.tokens.push_back(news_of(text, *event.token, *event.logprobs));
    }
    if (event.ends && !text.stop.stopped())
      more += text.stop.push(text.detokenizer.finish());
    const bool stopped = text.stop.stopped();
    if (event.ends && !stopped)
      more += text.stop.finish();
    part.text = text.calls.push(more);
    if (stopped || event.ends) {
      part.finish = stopped || event.ends == StopReason::Stop ? "stop" : "length";
      ToolCallReader::Rest rest = text.calls.finish();
      part.text += rest.text;
      part.calls = std::move(rest.calls);
      if (text.one_call && part.calls.size() > 1)
        part.calls.resize(1);
      if (!part.calls.empty() && stopped_by_itself(part))
        part.finish = "tool_calls";
    }
    if (part.text.empty() && part.tokens.empty() && part.finish == nullptr)
      return;
    part.usage = job.usage;
    const bool ends = part.finish != nullptr;
    part.last = ends && job.texts == 1;
    job.receive(std::move(part));
    if (ends)
      end(event.id);
  }

  /// The next text of the embedding that has waited longest.
  void embed_one() {
    if (embeddings.empty())
      return;
    const auto at = embeddings.begin();
    Embedding& job = at->second;
    try {
      job.done.values.push_back(model.embedding(job.texts[job.done.values.size()]));
    } catch (const std::exception& error) {
      job.done = {{}, 500, error.what()};
    }
    if (job.done.failed == 0 && job.done.values.size() < job.texts.size())
      return;
    if (job.done.failed == 0)
      metrics.ended(seconds_since(job.came), tokens_of(job), 0, 0);
    job.receive(std::move(job.done));
    embeddings.erase(at);
    leave();
  }
  static std::size_t tokens_of(const Embedding& job) {
    std::size_t count = 0;
    for (const auto& text : job.texts)
      count += text.size();
    return count;
  }

  static bool stopped_by_itself(const Part& part) {
    return std::string_view(part.finish) == "stop";
  }

  /// The bytes of a token, or how the vocabulary writes it.
  std::string bytes_of(int token) const {
    try {
      if (auto bytes = tokenizer.bytes_of(token))
        return *bytes;
    } catch (const Error&) { // tokens of this decoder have no bytes of their own
    }
    return tokenizer.token_of(token).value_or("");
  }
  TokenNews news_of(Writing& text, int token, const models::Logprobs& logprobs) const {
    TokenNews news{{bytes_of(token), logprobs.value}, {}, text.characters};
    if (!tokenizer.is_special(token)) // those are no part of the text
      text.characters += static_cast<std::size_t>(
          std::ranges::count_if(news.token.bytes, [](char c) { return (c & 0xc0) != 0x80; }));
    for (const models::TokenLogprob& one : logprobs.top)
      news.top.push_back({bytes_of(one.token), one.value});
    return news;
  }

  void fail(Id job, int status, const std::string& why) {
    Running& running = jobs.at(job);
    running.receive({.failed = status, .error = why, .usage = running.usage, .last = true});
    end_job(job);
  }

  void end_late_jobs() {
    std::vector<Id> late;
    for (const auto& [id, job] : jobs)
      if (seconds_since(job.came) > job_seconds)
        late.push_back(id);
    for (const auto id : late) {
      metrics.cancelled();
      fail(id, 504, kTooLong);
    }
    std::erase_if(embeddings, [&](auto& one) {
      if (seconds_since(one.second.came) <= job_seconds)
        return false;
      metrics.cancelled();
      one.second.receive({{}, 504, kTooLong});
      leave();
      return true;
    });
  }

  void drop(Id job) {
    if (embeddings.erase(job) > 0) {
      metrics.cancelled();
      leave();
    }
    if (!jobs.contains(job))
      return;
    metrics.cancelled();
    end_job(job);
  }

  /// Ends all texts of a job.
  void end_job(Id job) {
    std::erase_if(writing, [&](const auto& text) {
      if (text.second.job != job)
        return false;
      batch->cancel(text.first);
      return true;
    });
    const auto at = jobs.find(job);
    for (; at->second.texts > 0; --at->second.texts)
      leave();
    forget(at);
  }

  /// Ends a text.
  void end(GenerationBatch::Id id) {
    const auto at = writing.find(id);
    const auto job = jobs.find(at->second.job);
    batch->cancel(id);
    writing.erase(at);
    leave();
    if (--job->second.texts == 0)
      forget(job);
  }

  void forget(std::map<Id, Running>::iterator job) {
    const Usage& usage = job->second.usage;
    metrics.ended(seconds_since(job->second.came), usage.prompt, usage.reused, usage.written);
    jobs.erase(job);
  }

  void leave() {
    const std::scoped_lock lock(mutex);
    --admitted;
  }

  ServedModel model;
  const Tokenizer tokenizer;
  const std::size_t most;
  const double job_seconds;
  Metrics& metrics;

  // Of the thread only:
  std::optional<GenerationBatch> batch; ///< none for an encoder
  std::map<Id, Running> jobs;
  std::map<GenerationBatch::Id, Writing> writing;
  std::map<Id, Embedding> embeddings;

  std::mutex mutex; ///< of what follows
  std::condition_variable wake;
  std::vector<Submitted> submitted;
  std::map<Id, Embedding> embeddings_submitted;
  std::vector<Id> cancelled;
  std::size_t admitted = 0; ///< texts that have not ended
  Id next = 1;
  bool stopping = false;
  std::thread thread; ///< last: everything else is there when it starts
};

Engine::Engine(ServedModel model, Tokenizer tokenizer, std::size_t queue, double job_seconds,
               Metrics& metrics)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(tokenizer), queue, job_seconds,
                                   metrics)) {}

Engine::~Engine() {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->stopping = true;
  }
  impl_->wake.notify_all();
  impl_->thread.join();
}

const ServedModel& Engine::model() const noexcept {
  return impl_->model;
}

std::optional<Engine::Id> Engine::submit(Job job, Receive receive) {
  Id id = 0;
  {
    const std::scoped_lock lock(impl_->mutex);
    if (impl_->admitted + job.choices > impl_->most)
      return {};
    impl_->admitted += job.choices;
    id = impl_->next++;
    impl_->submitted.push_back({id, std::move(job), std::move(receive), Clock::now()});
  }
  impl_->wake.notify_all();
  return id;
}

std::optional<Engine::Id> Engine::embed(std::vector<std::vector<int>> texts,
                                        std::function<void(Embeddings)> receive) {
  Id id = 0;
  {
    const std::scoped_lock lock(impl_->mutex);
    if (impl_->admitted == impl_->most)
      return {};
    ++impl_->admitted;
    id = impl_->next++;
    impl_->embeddings_submitted.emplace(
        id, Embedding{std::move(texts), std::move(receive), Clock::now(), {}});
  }
  impl_->wake.notify_all();
  return id;
}

void Engine::cancel(Id id) {
  {
    const std::scoped_lock lock(impl_->mutex);
    impl_->cancelled.push_back(id);
  }
  impl_->wake.notify_all();
}

} // namespace egret::serve

#include "serve/engine.h"

#include "serve/stop_strings.h"

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

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A job under way.
struct Writing {
  Engine::Id job;
  Engine::Receive receive;
  StreamingDetokenizer detokenizer;
  StopStrings stop;
  Clock::time_point came, last;
  Usage usage;
};

struct Submitted {
  Engine::Id id;
  Job job;
  Engine::Receive receive;
  Clock::time_point came;
};

} // namespace

struct Engine::Impl {
  Impl(models::LanguageModel loaded, Tokenizer text, std::size_t queue, double seconds,
       Metrics& all)
      : model(std::move(loaded)), tokenizer(std::move(text)),
        most(static_cast<std::size_t>(model.sequences()) + queue), job_seconds(seconds),
        metrics(all), batch(model), thread([this] { work(); }) {}

  /// The thread: takes what has come, then a step of the model.
  void work() {
    for (;;) {
      std::vector<Submitted> fresh;
      std::vector<Id> leaving;
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] {
          return stopping || !submitted.empty() || !cancelled.empty() || !writing.empty();
        });
        if (stopping)
          return;
        fresh.swap(submitted);
        leaving.swap(cancelled);
      }
      for (Submitted& one : fresh)
        begin(std::move(one));
      for (const Id job : leaving)
        drop(job);
      end_late_jobs();
      try {
        for (const GenerationBatch::Event& event : batch.step())
          handle(event);
      } catch (const std::exception& error) { // out of memory, a lost device
        while (!writing.empty())
          fail(writing.begin()->first, 500, error.what());
      }
      metrics.load(batch.running(), batch.waiting());
    }
  }

  void begin(Submitted one) {
    const Usage usage{.prompt = one.job.prompt.size()};
    try {
      const GenerationBatch::Id id = batch.add(std::move(one.job.prompt), one.job.options);
      writing.emplace(id, Writing{one.id, std::move(one.receive), StreamingDetokenizer(tokenizer),
                                  StopStrings(std::move(one.job.stop)), one.came, one.came, usage});
    } catch (const std::exception& error) {
      one.receive({.failed = 400, .error = error.what()});
      leave();
    }
  }

  void handle(const GenerationBatch::Event& event) {
    const auto at = writing.find(event.id);
    if (at == writing.end()) // its time ended, or a stop string came, in this step
      return;
    Writing& text = at->second;
    if (!event.error.empty()) {
      fail(event.id, 500, event.error);
      return;
    }
    std::string more;
    text.usage.reused = event.reused;
    if (event.token) {
      if (text.usage.written++ == 0)
        metrics.first_token(seconds_since(text.came));
      else
        metrics.next_token(seconds_since(text.last));
      text.last = Clock::now();
      more = text.stop.push(text.detokenizer.push(*event.token));
    }
    if (event.ends && !text.stop.stopped())
      more += text.stop.push(text.detokenizer.finish());
    const bool stopped = text.stop.stopped();
    if (event.ends && !stopped)
      more += text.stop.finish();
    const char* finish = nullptr;
    if (stopped || event.ends)
      finish = stopped || event.ends == StopReason::Stop ? "stop" : "length";
    if (!more.empty() || finish != nullptr)
      text.receive({.text = std::move(more), .finish = finish, .usage = text.usage});
    if (finish != nullptr)
      end(event.id);
  }

  void fail(GenerationBatch::Id id, int status, const std::string& why) {
    Writing& text = writing.at(id);
    text.receive({.failed = status, .error = why, .usage = text.usage});
    end(id);
  }

  void end_late_jobs() {
    std::vector<GenerationBatch::Id> late;
    for (const auto& [id, text] : writing)
      if (seconds_since(text.came) > job_seconds)
        late.push_back(id);
    for (const auto id : late) {
      metrics.cancelled();
      fail(id, 504, "the request took longer than the server allows");
    }
  }

  void drop(Id job) {
    for (const auto& [id, text] : writing)
      if (text.job == job) {
        metrics.cancelled();
        end(id);
        return;
      }
  }

  void end(GenerationBatch::Id id) {
    const auto at = writing.find(id);
    const Usage& usage = at->second.usage;
    metrics.ended(seconds_since(at->second.came), usage.prompt, usage.reused, usage.written);
    batch.cancel(id);
    writing.erase(at);
    leave();
  }

  void leave() {
    const std::scoped_lock lock(mutex);
    --admitted;
  }

  models::LanguageModel model;
  const Tokenizer tokenizer;
  const std::size_t most;
  const double job_seconds;
  Metrics& metrics;

  // Of the thread only:
  GenerationBatch batch;
  std::map<GenerationBatch::Id, Writing> writing;

  std::mutex mutex; ///< of what follows
  std::condition_variable wake;
  std::vector<Submitted> submitted;
  std::vector<Id> cancelled;
  std::size_t admitted = 0; ///< jobs that have not ended
  Id next = 1;
  bool stopping = false;
  std::thread thread; ///< last: everything else is there when it starts
};

Engine::Engine(models::LanguageModel model, Tokenizer tokenizer, std::size_t queue,
               double job_seconds, Metrics& metrics)
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

const models::LanguageModel& Engine::model() const noexcept {
  return impl_->model;
}

std::optional<Engine::Id> Engine::submit(Job job, Receive receive) {
  Id id = 0;
  {
    const std::scoped_lock lock(impl_->mutex);
    if (impl_->admitted == impl_->most)
      return {};
    ++impl_->admitted;
    id = impl_->next++;
    impl_->submitted.push_back({id, std::move(job), std::move(receive), Clock::now()});
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

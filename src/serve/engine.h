// The thread that runs the model for all requests.
#pragma once

#include "egret/language_model.h"
#include "egret/tokenizer.h"
#include "serve/metrics.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::serve {

/// A text to be written.
struct Job {
  std::vector<int> prompt; ///< that the model takes: not empty, within context and vocabulary
  models::GenerateOptions options;
  std::vector<std::string> stop; ///< strings that end the text and are no part of it
};

struct Usage {
  std::size_t prompt = 0, reused = 0, written = 0; ///< tokens
};

/// News of a job. The last of it has `finish` or a status that is not 0.
struct Part {
  std::string text;             ///< valid UTF-8, may be empty
  const char* finish = nullptr; ///< "stop" or "length"
  int failed = 0;               ///< status of HTTP
  std::string error;            ///< why
  Usage usage;                  ///< so far
};

class Engine {
public:
  using Id = std::uint64_t;
  /// Called on the engine's thread; must neither block nor throw.
  using Receive = std::function<void(Part)>;

  /// At most model.sequences() + queue jobs at a time, each up to so many seconds long.
  Engine(models::LanguageModel model, Tokenizer tokenizer, std::size_t queue, double job_seconds,
         Metrics& metrics);
  ~Engine(); ///< drops all jobs
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const models::LanguageModel& model() const noexcept; ///< for what never changes of it

  // From any thread:
  std::optional<Id> submit(Job job, Receive receive); ///< nothing where the queue is full
  void cancel(Id id);                                 ///< hears no more soon; unknown ids are fine

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::serve

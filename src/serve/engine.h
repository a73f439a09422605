// The thread that runs the model for all requests.
#pragma once

#include "egret/language_model.h"
#include "egret/tokenizer.h"
#include "serve/metrics.h"
#include "serve/served_model.h"
#include "serve/tools.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::serve {

/// Texts to be written.
struct Job {
  std::vector<int> prompt; ///< that the model takes: not empty, within context and vocabulary
  models::GenerateOptions options;
  std::vector<std::string> stop; ///< strings that end a text and are no part of it
  std::size_t choices = 1;       ///< texts, each with a seed of its own that follows from the given
  ToolForm tools = ToolForm::None;     ///< that calls are told from the text in
  std::vector<std::string> tool_names; ///< that may be called
  bool one_call = false;               ///< of several, the first only
};

struct Usage {
  std::size_t prompt = 0, reused = 0, written = 0; ///< tokens
};

/// A token that was sampled, with its log-probability and those of the likeliest.
struct TokenNews {
  struct Likely {
    std::string bytes; ///< of the token; may be a part of a character
    float logprob = 0;
  };
  Likely token;
  std::vector<Likely> top;
  std::size_t offset = 0; ///< characters of the text before it
};

/// News of a text of a job. The last of all has `last`.
struct Part {
  std::string text;              ///< valid UTF-8, may be empty
  const char* finish = nullptr;  ///< "stop", "length" or "tool_calls": the text has ended
  int failed = 0;                ///< status of HTTP: the job has ended
  std::string error;             ///< why
  Usage usage;                   ///< of all texts so far
  std::size_t choice = 0;        ///< number of the text
  bool last = false;             ///< the job has ended
  std::vector<TokenNews> tokens; ///< where log-probabilities are asked for
  std::vector<ToolCall> calls;   ///< with `finish`
};

/// The embeddings of some texts, or why there are none.
struct Embeddings {
  std::vector<std::vector<float>> values; ///< [texts][width]
  int failed = 0;                         ///< status of HTTP
  std::string error;
};

class Engine {
public:
  using Id = std::uint64_t;
  /// Called on the engine's thread; must neither block nor throw.
  using Receive = std::function<void(Part)>;

  /// At most model.sequences() + queue texts at a time, each up to so many seconds long.
  Engine(ServedModel model, Tokenizer tokenizer, std::size_t queue, double job_seconds,
         Metrics& metrics);
  ~Engine(); ///< drops all jobs
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const ServedModel& model() const noexcept; ///< for what never changes of it

  // From any thread:
  /// Nothing where the queue is full. The model is no encoder.
  std::optional<Id> submit(Job job, Receive receive);
  /// Embeddings by the pooling of the model's folder, of texts that the model takes; one between
  /// two steps of the others. Counts as one text.
  std::optional<Id> embed(std::vector<std::vector<int>> texts,
                          std::function<void(Embeddings)> receive);
  void cancel(Id id); ///< hears no more soon; unknown ids are fine

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::serve

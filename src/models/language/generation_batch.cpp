#include "egret/language_model.h"
#include "models/language/cached_model.h"
#include "models/language/model_impl.h"
#include "models/language/sampling.h"

#include <algorithm>
#include <deque>
#include <exception>

namespace egret::models {

using namespace language;

namespace {

struct Text {
  GenerationBatch::Id id;
  std::vector<int> tokens; ///< the prompt, then what was written
  std::size_t prompt;      ///< tokens
  Sampler sampler;
  std::int64_t most;                          ///< tokens to write
  std::optional<BlockSequence> sequence = {}; ///< of a text that runs
  std::optional<std::size_t> reused = {};     ///< tokens of the prompt; none before it is read

  std::int64_t written() const { return static_cast<std::int64_t>(tokens.size() - prompt); }
  /// Tokens that the cache does not hold yet: the last one written, or more that are to be read.
  std::size_t rest() const { return tokens.size() - sequence->size(); }
  bool reads() const { return !reused || rest() > 1; }
  /// What may be taken from other sequences: the last token is read in any case, for its logits.
  std::span<const int> shareable() const { return std::span(tokens).first(tokens.size() - 1); }
};

} // namespace

struct GenerationBatch::Impl {
  CachedModel& model;
  std::vector<int> stop;       ///< of the model
  std::deque<Text> texts = {}; ///< in the order in which they were added
  Id next = 1;
  std::uint64_t preempted = 0;

  std::size_t running() const {
    return static_cast<std::size_t>(
        std::ranges::count_if(texts, [](const Text& text) { return text.sequence.has_value(); }));
  }

  /// Lets texts that wait run, the first ones first, while there are blocks for what they are to
  /// read and, beside others, for a token more.
  void admit() {
    std::size_t beside = 0;
    std::int64_t promised = 0; // blocks that texts which run will take
    for (Text& text : texts) {
      if (std::cmp_equal(beside, model.sizes().sequences))
        return;
      if (!text.sequence) {
        BlockSequence sequence = model.sequence();
        sequence.share(text.shareable());
        const std::size_t rest = text.tokens.size() - sequence.size();
        if (promised + sequence.needed(rest + (beside > 0)) > model.pool().available())
          return;
        text.sequence = std::move(sequence);
      }
      ++beside;
      promised += text.sequence->needed(text.rest());
    }
  }

  /// Reserves positions for `count` tokens of a text that runs. Where too few blocks are available,
  /// texts that came last wait again, and are read again later; false where that is this one, or
  /// where it is alone.
  bool make_room(Text& text, std::size_t count) {
    while (!model.reserve(*text.sequence, count)) {
      const auto last = std::find_if(texts.rbegin(), texts.rend(),
                                     [](const Text& t) { return t.sequence.has_value(); });
      const bool itself = &*last == &text;
      if (itself && running() == 1)
        return false;
      last->sequence.reset();
      ++preempted;
      if (itself)
        return false;
    }
    return true;
  }

  /// The end of a text for which something failed.
  static Event failed(const Text& text, const std::exception& error) {
    return {.id = text.id,
            .ends = StopReason::Caller,
            .reused = text.reused.value_or(0),
            .error = error.what()};
  }

  /// The next token of a text from its logits.
  Event draw(Text& text, std::span<const float> logits) const {
    Event event{.id = text.id, .reused = text.reused.value_or(0)};
    std::optional<Draw> draw;
    try {
      draw = text.sampler.next(logits);
    } catch (const std::exception& error) {
      return failed(text, error);
    }
    if (!draw || text.sampler.stops(draw->token)) {
      event.ends = StopReason::Stop;
      return event;
    }
    event.token = draw->token;
    event.logprobs = std::move(draw->logprobs);
    text.tokens.push_back(draw->token);
    if (text.written() == text.most)
      event.ends = StopReason::Length;
    else if (std::cmp_equal(text.sequence->size(), model.sizes().capacity))
      event.ends = StopReason::Context;
    return event;
  }

  /// A chunk of a text; what became of it, if anything.
  std::optional<Event> read(Text& text) {
    text.sequence->share(text.shareable()); // others may have read more of it since
    if (!text.reused)
      text.reused = text.sequence->size();
    const std::size_t n = std::min(text.rest(), static_cast<std::size_t>(model.sizes().chunk));
    if (!make_room(text, n))
      return end_if_alone(text);
    const std::size_t have = text.sequence->size();
    const std::vector<float> logits =
        model.read(*text.sequence, std::span(text.tokens).subspan(have, n));
    if (have + n < text.tokens.size())
      return {};
    return draw(text, logits);
  }

  /// A chunk of the text that has waited longest.
  void read(std::vector<Event>& events) {
    const auto text =
        std::ranges::find_if(texts, [](const Text& t) { return t.sequence && t.reads(); });
    if (text == texts.end())
      return;
    try {
      if (std::optional<Event> event = read(*text))
        events.push_back(std::move(*event));
    } catch (const std::exception& error) {
      events.push_back(failed(*text, error));
    }
  }

  /// A token of each text in `writing`. Where the run fails, it fails for all of them.
  void write(std::span<Text* const> writing, std::vector<Event>& events) {
    std::vector<Text*> ready;
    std::vector<CachedModel::Next> tokens;
    for (Text* text : writing) {
      if (!text->sequence) // it has to wait since
        continue;
      try {
        if (make_room(*text, 1)) {
          ready.push_back(text);
          tokens.push_back({&*text->sequence, text->tokens.back()});
        } else if (std::optional<Event> event = end_if_alone(*text)) {
          events.push_back(std::move(*event));
        }
      } catch (const std::exception& error) {
        events.push_back(failed(*text, error));
      }
    }
    if (ready.empty())
      return;
    std::vector<std::vector<float>> logits;
    try {
      logits = model.write(tokens);
    } catch (const std::exception& error) {
      for (const Text* text : ready)
        events.push_back(failed(*text, error));
      return;
    }
    for (std::size_t i = 0; i < ready.size(); ++i)
      events.push_back(draw(*ready[i], logits[i]));
  }

  /// A text that still runs without room has the cache for itself, and has filled it.
  static std::optional<Event> end_if_alone(const Text& text) {
    if (!text.sequence)
      return {};
    return Event{.id = text.id, .ends = StopReason::Context, .reused = text.reused.value_or(0)};
  }
};

GenerationBatch::GenerationBatch(LanguageModel& model)
    : impl_(new Impl{model.impl_->model, model.config().stop}) {}
GenerationBatch::~GenerationBatch() = default;
GenerationBatch::GenerationBatch(GenerationBatch&&) noexcept = default;

GenerationBatch::Id GenerationBatch::add(std::vector<int> prompt, const GenerateOptions& options) {
  require_valid(options);
  impl_->model.require_tokens(prompt, "generate");
  if (const BlockPool& pool = impl_->model.pool(); pool.blocks_for(prompt.size()) > pool.size())
    impl_->model.refuse(prompt.size(), "generate");
  Sampler sampler(options, prompt, options.stop.value_or(impl_->stop));
  const std::size_t size = prompt.size();
  impl_->texts.push_back(
      {impl_->next, std::move(prompt), size, std::move(sampler), options.max_new});
  return impl_->next++;
}

void GenerationBatch::cancel(Id id) {
  std::erase_if(impl_->texts, [&](const Text& text) { return text.id == id; });
}

std::size_t GenerationBatch::running() const noexcept {
  return impl_->running();
}

std::size_t GenerationBatch::waiting() const noexcept {
  return impl_->texts.size() - running();
}

std::uint64_t GenerationBatch::preempted() const noexcept {
  return impl_->preempted;
}

std::vector<GenerationBatch::Event> GenerationBatch::step() {
  std::vector<Event> events;
  for (const Text& text : impl_->texts)
    if (text.most == 0)
      events.push_back({.id = text.id, .ends = StopReason::Length});
  for (const Event& event : events)
    cancel(event.id);
  impl_->admit();
  std::vector<Text*> writing; // those whose prompts had been read before this step
  for (Text& text : impl_->texts)
    if (text.sequence && !text.reads())
      writing.push_back(&text);
  impl_->read(events);
  impl_->write(writing, events);
  std::ranges::sort(events, {}, &Event::id);
  for (const Event& event : events)
    if (event.ends)
      cancel(event.id);
  return events;
}

} // namespace egret::models

#include "egret/language_model.h"
#include "models/language/cached_model.h"
#include "models/language/model_impl.h"
#include "models/language/sampling.h"

#include <algorithm>
#include <deque>

namespace egret::models {

using namespace language;

namespace {

struct Text {
  GenerationBatch::Id id;
  std::vector<int> prompt;
  Sampler sampler;
  std::int64_t most; ///< tokens to write
  std::int64_t written = 0;
  std::optional<std::size_t> sequence = {};
  std::size_t reused = 0;
  int last = 0; ///< the token written last

  bool reads(const CachedModel& model) const {
    return written == 0 && model.held(*sequence).size() < prompt.size();
  }
};

} // namespace

struct GenerationBatch::Impl {
  CachedModel& model;
  std::vector<int> stop;       ///< of the model
  std::deque<Text> texts = {}; ///< in the order in which they were added
  Id next = 1;
  std::uint64_t steps = 0;
  /// The step that used each sequence last; 0: none.
  std::vector<std::uint64_t> used_by =
      std::vector<std::uint64_t>(static_cast<std::size_t>(model.sizes().sequences));

  /// The sequence among those not in `used` for a prompt. Many prompts begin alike, with the header
  /// of a chat: a sequence is continued if that loses no more tokens than it saves, so that another
  /// text's tokens stay for its next turn; otherwise an empty one is taken, or the one that has
  /// waited longest.
  std::optional<std::size_t> place_for(std::span<const int> prompt,
                                       const std::vector<bool>& used) const {
    std::optional<std::size_t> best, empty, oldest;
    std::size_t most = 0;
    for (std::size_t i = 0; i < used.size(); ++i) {
      if (used[i])
        continue;
      const std::size_t held = model.held(i).size(), common = model.common(i, prompt);
      if (common > most && 2 * common >= held) {
        best = i;
        most = common;
      }
      if (held == 0 && !empty)
        empty = i;
      if (!oldest || used_by[i] < used_by[*oldest])
        oldest = i;
    }
    return best ? best : empty ? empty : oldest;
  }

  /// Gives sequences that are free to texts that wait.
  void admit() {
    std::vector<bool> used(used_by.size());
    for (const Text& text : texts)
      if (text.sequence)
        used[*text.sequence] = true;
    for (Text& text : texts) {
      if (text.sequence)
        continue;
      const std::optional<std::size_t> place = place_for(text.prompt, used);
      if (!place)
        break;
      used[*place] = true;
      text.sequence = place;
      text.reused = model.common(*place, text.prompt);
      model.keep(*place, text.reused);
    }
    ++steps;
    for (std::size_t i = 0; i < used.size(); ++i)
      if (used[i])
        used_by[i] = steps;
  }

  /// The next token of a text from its logits.
  Event draw(Text& text, std::span<const float> logits) const {
    Event event{.id = text.id, .reused = text.reused};
    std::optional<Draw> draw;
    try {
      draw = text.sampler.next(logits);
    } catch (const Error& error) {
      event.ends = StopReason::Caller;
      event.error = error.what();
      return event;
    }
    if (!draw || text.sampler.stops(draw->token)) {
      event.ends = StopReason::Stop;
      return event;
    }
    event.token = text.last = draw->token;
    event.logprobs = std::move(draw->logprobs);
    if (++text.written == text.most)
      event.ends = StopReason::Length;
    else if (std::ssize(model.held(*text.sequence)) == model.sizes().capacity)
      event.ends = StopReason::Context;
    return event;
  }

  /// Copies what another sequence holds of a prompt where that saves reading many tokens.
  void share(Text& text) const {
    constexpr std::size_t kLeast = 16;
    std::size_t best = text.reused + kLeast - 1;
    std::optional<std::size_t> from;
    for (std::size_t i = 0; i < used_by.size(); ++i)
      if (const std::size_t common = model.common(i, text.prompt);
          i != *text.sequence && common > best) {
        best = common;
        from = i;
      }
    if (!from)
      return;
    model.copy(*from, *text.sequence, best);
    text.reused = best;
  }

  /// A chunk of the prompt that has waited longest.
  void read(std::vector<Event>& events) {
    const auto text = std::find_if(texts.begin(), texts.end(),
                                   [&](const Text& t) { return t.sequence && t.reads(model); });
    if (text == texts.end())
      return;
    if (model.held(*text->sequence).size() == text->reused)
      share(*text);
    const std::size_t have = model.held(*text->sequence).size();
    const std::size_t n =
        std::min(text->prompt.size() - have, static_cast<std::size_t>(model.sizes().chunk));
    const std::vector<float> logits =
        model.read(*text->sequence, std::span<const int>(text->prompt).subspan(have, n));
    if (have + n == text->prompt.size())
      events.push_back(draw(*text, logits));
  }

  /// A token of each text in `writing`.
  void write(std::vector<Text*> writing, std::vector<Event>& events) const {
    if (writing.empty())
      return;
    std::ranges::sort(writing, {}, [](const Text* t) { return *t->sequence; });
    std::vector<CachedModel::Next> tokens;
    for (const Text* text : writing)
      tokens.push_back({*text->sequence, text->last});
    const auto logits = model.write(tokens);
    for (std::size_t i = 0; i < writing.size(); ++i)
      events.push_back(draw(*writing[i], logits[i]));
  }
};

GenerationBatch::GenerationBatch(LanguageModel& model)
    : impl_(new Impl{model.impl_->model, model.config().stop}) {}
GenerationBatch::~GenerationBatch() = default;
GenerationBatch::GenerationBatch(GenerationBatch&&) noexcept = default;

GenerationBatch::Id GenerationBatch::add(std::vector<int> prompt, const GenerateOptions& options) {
  require_valid(options);
  impl_->model.require_tokens(prompt, "generate");
  Sampler sampler(options, prompt, options.stop.value_or(impl_->stop));
  impl_->texts.push_back({impl_->next, std::move(prompt), std::move(sampler), options.max_new});
  return impl_->next++;
}

void GenerationBatch::cancel(Id id) {
  std::erase_if(impl_->texts, [&](const Text& text) { return text.id == id; });
}

std::size_t GenerationBatch::running() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(
      impl_->texts, [](const Text& text) { return text.sequence.has_value(); }));
}

std::size_t GenerationBatch::waiting() const noexcept {
  return impl_->texts.size() - running();
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
    if (text.sequence && !text.reads(impl_->model))
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

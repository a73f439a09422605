#include "egret/speech_model.h"

#include "egret/compile.h"
#include "egret/device.h"
#include "egret/functional.h"
#include "io/json_file.h"
#include "models/speech/log_mel.h"
#include "models/speech/whisper.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace egret::models {

using namespace speech;

namespace {

constexpr double kTimeStep = 0.02; // of the tokens of times: two frames

struct HearStep {
  SpeechConfig config;
  Tensor operator()(const SpeechEncoder& encoder, const Tensor& frames) const {
    return encoder(config, frames).to(DType::F32);
  }
};

struct SoundStep {
  SpeechConfig config;
  SoundCache operator()(const Whisper& model, const Tensor& frames) const {
    return model.decoder.sound_cache(config, model.encoder(config, frames));
  }
};

struct TokenStep {
  SpeechConfig config;
  Tensor operator()(const SpeechDecoder& decoder, const Tensor& ids, const Tensor& begin,
                    const SoundCache& sound, TokenCache& cache) const {
    return decoder(config, ids, begin, sound, cache);
  }
};

CompileOptions of_any_count(const char* name, std::int64_t most) {
  return {.name = name,
          .dims = {{.name = "tokens", .least = 1, .most = most, .at = {{1, 0}}, .buckets = {1}}}};
}

/// What the rules of times leave of the logits behind the tokens of a window: times come in pairs,
/// but before the end, and never go back; one begins the text; and where all times together are
/// likelier than any word, a time is next (OpenAI's whisper, decoding.py).
class TimeRules {
public:
  explicit TimeRules(const SpeechConfig& config) : c_(config), first_(*config.no_times + 1) {}

  bool is_time(int token) const { return token >= first_; }
  double seconds(int token) const { return (token - first_) * kTimeStep; }
  std::int64_t frames(int token) const { return 2 * (token - first_); }

  void apply(std::span<float> logits, std::span<const int> written) const {
    forbid(logits, *c_.no_times, *c_.no_times + 1);
    const int count = static_cast<int>(logits.size());
    if (written.empty()) {
      forbid(logits, 0, first_);
      forbid(logits, first_ + static_cast<int>(c_.latest_begin) + 1, count);
    } else if (is_time(written.back())) {
      if (written.size() < 2 || is_time(written[written.size() - 2]))
        forbid(logits, first_, count);
      else
        forbid(logits, 0, c_.end);
    }
    const auto last =
        std::find_if(written.rbegin(), written.rend(), [&](int token) { return is_time(token); });
    if (last != written.rend()) {
      const bool opens =
          is_time(written.back()) && (written.size() < 2 || !is_time(written[written.size() - 2]));
      forbid(logits, first_, *last + (opens ? 0 : 1));
    }
    const auto words = logits.first(static_cast<std::size_t>(first_)),
               times = logits.subspan(static_cast<std::size_t>(first_));
    const float largest = *std::ranges::max_element(times);
    double sum = 0;
    for (const float x : times)
      sum += std::exp(static_cast<double>(x) - largest);
    if (std::isfinite(largest) && largest + std::log(sum) > *std::ranges::max_element(words))
      forbid(logits, 0, first_);
  }

private:
  static void forbid(std::span<float> logits, int begin, int end) {
    for (int i = begin; i < std::min(end, static_cast<int>(logits.size())); ++i)
      logits[static_cast<std::size_t>(i)] = -std::numeric_limits<float>::infinity();
  }

  const SpeechConfig& c_;
  int first_; ///< the token of 0.00
};

} // namespace

struct SpeechModel::Impl {
  Impl(SpeechConfig c, Whisper w, std::int64_t size)
      : config(std::move(c)), model(std::move(w)),
        bytes(size), sizes{config.rate, config.hop, config.window, config.bins},
        filters(mel_filters(sizes).eval()), spectra(spectrum_matrices(config.window).eval()),
        cache(model.decoder.token_cache(config)),
        hear(HearStep{config}, {.name = "speech, states"}),
        sound(SoundStep{config}, {.name = "speech, sound"}),
        write(TokenStep{config}, of_any_count("speech, tokens", config.text_positions)) {}

  void require_frames(const Tensor& frames) const {
    const Shape needed = {config.bins, 2 * config.sound_positions};
    if (frames.shape() != needed)
      fail(ErrorKind::Shape, "SpeechModel: frames are {}; the model hears {}",
           to_string(frames.shape()), to_string(needed));
  }

  /// Logits [tokens, vocabulary] of tokens behind those that the cache holds.
  std::vector<float> read(std::span<const int> tokens, std::size_t held, const SoundCache& heard) {
    std::vector<std::int64_t> ids(tokens.begin(), tokens.end());
    const Tensor begin = tensor<std::int64_t>({static_cast<std::int64_t>(held)}).squeeze(0);
    return write(model.decoder, tensor(ids), begin, heard, cache).to_vector<float>();
  }

  std::string language_of(const SoundCache& heard) {
    if (config.languages.empty())
      return "en";
    const std::vector<float> logits = read(std::span(&config.start, 1), 0, heard);
    const auto likelihood = [&](const auto& one) {
      return logits[static_cast<std::size_t>(one.second)];
    };
    return std::ranges::max_element(config.languages, {}, likelihood)->first;
  }

  std::vector<int> prompt_of(const TranscribeOptions& o, const std::string& language,
                             bool times) const {
    std::vector<int> prompt = {config.start};
    if (!config.languages.empty())
      prompt.insert(prompt.end(), {config.languages.at(language),
                                   config.tasks.at(o.translate ? "translate" : "transcribe")});
    if (!times && config.no_times)
      prompt.push_back(*config.no_times);
    return prompt;
  }

  /// The likeliest tokens of a window behind a prompt, without that of the end.
  std::vector<int> written(const SoundCache& heard, std::span<const int> prompt, bool times) {
    const auto never = [](std::span<float> logits, const std::vector<int>& tokens) {
      for (const int token : tokens)
        logits[static_cast<std::size_t>(token)] = -std::numeric_limits<float>::infinity();
    };
    const auto vocabulary = static_cast<std::size_t>(config.vocabulary);
    std::vector<int> tokens;
    std::vector<float> logits = read(prompt, 0, heard);
    for (std::size_t held = prompt.size();; ++held) {
      const std::span<float> last = std::span(logits).last(vocabulary);
      never(last, config.never);
      if (tokens.empty())
        never(last, config.never_first);
      if (times)
        TimeRules(config).apply(last, tokens);
      else if (config.no_times)
        std::fill(last.begin() + *config.no_times, last.end(),
                  -std::numeric_limits<float>::infinity());
      const int token = static_cast<int>(std::ranges::max_element(last) - last.begin());
      if (token == config.end)
        return tokens;
      tokens.push_back(token);
      if (static_cast<std::int64_t>(held) + 1 >= config.text_positions)
        return tokens;
      logits = read(std::span(&token, 1), held, heard);
    }
  }

  SpeechConfig config;
  Whisper model;
  std::int64_t bytes;
  SpectrumSizes sizes;
  Tensor filters, spectra;
  TokenCache cache;
  Compiled<HearStep> hear;
  Compiled<SoundStep> sound;
  Compiled<TokenStep> write;
};

SpeechModel::SpeechModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpeechModel::~SpeechModel() = default;
SpeechModel::SpeechModel(SpeechModel&&) noexcept = default;
SpeechModel& SpeechModel::operator=(SpeechModel&&) noexcept = default;

SpeechModel SpeechModel::load(const std::filesystem::path& folder, const SpeechOptions& options) {
  if (options.dtype && !is_float(*options.dtype))
    fail(ErrorKind::DType, "SpeechModel: weights in {}; a float is needed",
         name_of(*options.dtype));
  if (!options.device.empty())
    use_device(options.device);
  const std::filesystem::path path = folder / "config.json";
  Keys keys(io::read_json_object(path), path.string());
  SpeechConfig config = read_speech_config(keys);
  keys.require_all_read(options.ignored_keys);
  read_speech_files(folder, config);
  ParameterReader reader(folder, options.dtype);
  Whisper model = read_whisper(reader, config);
  return SpeechModel(std::make_unique<Impl>(std::move(config), std::move(model), reader.bytes()));
}

const SpeechConfig& SpeechModel::config() const noexcept {
  return impl_->config;
}
std::int64_t SpeechModel::weight_bytes() const noexcept {
  return impl_->bytes;
}
std::int64_t SpeechModel::window_samples() const noexcept {
  return 2 * impl_->config.sound_positions * impl_->config.hop;
}

Tensor SpeechModel::log_mel(const Tensor& samples) const {
  if (samples.rank() != 1)
    fail(ErrorKind::Shape, "log_mel: samples are {}, not [count]", to_string(samples.shape()));
  return speech::log_mel(pad(samples.to(DType::F32), {0}, {window_samples()}), impl_->filters,
                         impl_->spectra, impl_->sizes);
}

Tensor SpeechModel::states(const Tensor& frames) {
  impl_->require_frames(frames);
  return impl_->hear(impl_->model.encoder, frames);
}

Tensor SpeechModel::logits(const Tensor& frames, std::span<const int> tokens) {
  impl_->require_frames(frames);
  const SpeechConfig& c = impl_->config;
  if (tokens.empty() || std::ssize(tokens) > c.text_positions)
    fail(ErrorKind::Value, "logits: {} tokens; there must be 1 to {}", tokens.size(),
         c.text_positions);
  for (const int token : tokens)
    if (token < 0 || token >= c.vocabulary)
      fail(ErrorKind::Value, "logits: token {} is not in the vocabulary of {}", token,
           c.vocabulary);
  return tensor(impl_->read(tokens, 0, impl_->sound(impl_->model, frames)),
                Shape{std::ssize(tokens), c.vocabulary});
}

std::string SpeechModel::language(const Tensor& frames) {
  impl_->require_frames(frames);
  return impl_->language_of(impl_->sound(impl_->model, frames));
}

std::vector<SpeechSegment>
SpeechModel::transcribe(const Tensor& samples, const TranscribeOptions& o,
                        const std::function<bool(const SpeechSegment&)>& heard) {
  const SpeechConfig& c = impl_->config;
  std::string language = o.language;
  if (!language.empty() && !c.languages.contains(language) &&
      !(c.languages.empty() && language == "en")) {
    std::vector<std::string> known;
    for (const auto& [name, token] : c.languages)
      known.push_back(name);
    fail(ErrorKind::Value, "transcribe: the model does not know the language '{}'; it knows {}",
         printable(language), known.empty() ? "en" : fmt::format("{}", fmt::join(known, ", ")));
  }
  if (o.translate && !c.tasks.contains("translate"))
    fail(ErrorKind::Value, "transcribe: the model does not translate");
  if (samples.numel() == 0)
    fail(ErrorKind::Value, "transcribe: there are no samples");
  const bool times = o.times && c.no_times;
  const Tensor frames = log_mel(samples).eval();
  const std::int64_t window = 2 * c.sound_positions, all = samples.size(0) / c.hop;
  const double frame = static_cast<double>(c.hop) / static_cast<double>(c.rate);
  std::vector<SpeechSegment> segments;
  for (std::int64_t seek = 0; seek < std::max<std::int64_t>(all, 1);) {
    const SoundCache sound = impl_->sound(impl_->model, frames.narrow(1, seek, window));
    if (language.empty())
      language = impl_->language_of(sound);
    const std::vector<int> tokens =
        impl_->written(sound, impl_->prompt_of(o, language, times), times);
    const double begin = static_cast<double>(seek) * frame;
    const std::int64_t rest = std::max<std::int64_t>(std::min(window, all - seek), 1);
    const auto add = [&](double from, double to, std::span<const int> part) {
      SpeechSegment segment{begin + from, begin + to, {}};
      std::ranges::copy_if(part, std::back_inserter(segment.tokens),
                           [&](int token) { return token < c.end; });
      segments.push_back(std::move(segment));
      return !heard || heard(segments.back());
    };
    if (!times) {
      if (!add(0, static_cast<double>(rest) * frame, tokens))
        return segments;
      seek += rest;
      continue;
    }
    const TimeRules rules(c);
    std::vector<std::size_t> ends; // of segments: where two times meet
    for (std::size_t i = 1; i < tokens.size(); ++i)
      if (rules.is_time(tokens[i - 1]) && rules.is_time(tokens[i]))
        ends.push_back(i);
    const bool closed = tokens.size() >= 2 && rules.is_time(tokens.back()) &&
                        !rules.is_time(tokens[tokens.size() - 2]);
    if (ends.empty()) {
      double length = static_cast<double>(rest) * frame;
      const auto last = std::find_if(tokens.rbegin(), tokens.rend(),
                                     [&](int token) { return rules.is_time(token); });
      if (last != tokens.rend() && rules.seconds(*last) > 0)
        length = rules.seconds(*last);
      if (!add(0, length, tokens))
        return segments;
      seek += rest;
      continue;
    }
    if (closed)
      ends.push_back(tokens.size());
    std::size_t from = 0;
    for (const std::size_t to : ends) {
      if (!add(rules.seconds(tokens[from]), rules.seconds(tokens[to - 1]),
               std::span(tokens).subspan(from, to - from)))
        return segments;
      from = to;
    }
    // What no pair of times closes is heard again from there on.
    const std::int64_t next = closed ? rest : rules.frames(tokens[from - 1]);
    seek += std::max<std::int64_t>(next, 1);
  }
  return segments;
}

} // namespace egret::models

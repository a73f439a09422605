// Speech to text by published checkpoints: Whisper.
#pragma once

#include "egret/nn.h"
#include "egret/tensor.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::models {

/// Sizes of a model from config.json, its tokens from generation_config.json, the front end from
/// preprocessor_config.json.
struct SpeechConfig {
  std::int64_t vocabulary = 0, width = 0;
  std::int64_t encoder_layers = 0, encoder_heads = 0, encoder_hidden = 0;
  std::int64_t decoder_layers = 0, decoder_heads = 0, decoder_hidden = 0;
  std::int64_t sound_positions = 0; ///< of the encoder, two frames each
  std::int64_t text_positions = 0;  ///< of the decoder
  std::int64_t bins = 80;           ///< of the mel scale
  nn::Activation activation = nn::Activation::Gelu;

  std::int64_t rate = 16000, hop = 160, window = 400; ///< samples a second, a frame, a spectrum

  int start = 0, end = 0;                      ///< tokens before the first and behind the last
  std::map<std::string, int> languages, tasks; ///< their tokens: "en", "transcribe"; none: English
  std::optional<int> no_times; ///< the token before those of times; none: the model writes no times
  std::int64_t latest_begin = 50;      ///< most steps of 0.02 s before the first time
  std::vector<int> never, never_first; ///< tokens that are not written, or not as the first
};

struct SpeechOptions {
  std::string device = {};         ///< as use_device(); empty: the one in use
  std::optional<DType> dtype = {}; ///< of weights and states; empty: that of the checkpoint
  std::vector<std::string> ignored_keys = {}; ///< of config.json that egret does not know
};

struct TranscribeOptions {
  std::string language = {}; ///< as in "en"; empty: the likeliest of the first window
  bool translate = false;    ///< to English
  bool times = true;         ///< false: whole windows, cut where they end
};

/// What was said between two times, in seconds from the beginning.
struct SpeechSegment {
  double begin = 0, end = 0;
  std::vector<int> tokens; ///< of the text alone
};

/// A speech model with its weights. One thread at a time.
class SpeechModel {
public:
  /// Reads a folder in the layout of Hugging Face's hub whose model_type is "whisper".
  /// Configuration and list of tensors are checked before any weight is read: Error(Unsupported)
  /// for another architecture and a key of config.json that egret does not know, Error(File) for
  /// damaged files and for a tensor that is missing, superfluous, no float or of another shape than
  /// the configuration says; each names file and thing.
  static SpeechModel load(const std::filesystem::path& folder, const SpeechOptions& options = {});
  ~SpeechModel();
  SpeechModel(SpeechModel&&) noexcept;
  SpeechModel& operator=(SpeechModel&&) noexcept;

  const SpeechConfig& config() const noexcept;
  std::int64_t weight_bytes() const noexcept;
  std::int64_t window_samples() const noexcept; ///< that the model hears at once

  /// The logarithmic mel spectrogram f32 [bins, frames] of samples [count] at config().rate,
  /// followed by a window of silence: frames = (count + window_samples()) / hop. Squared magnitudes
  /// of Hann windows, in Slaney's mel scale, at most 8 decades below the largest, as OpenAI's
  /// whisper scales them. Error(Shape) for other ranks.
  Tensor log_mel(const Tensor& samples) const;

  /// The encoder's states f32 [sound_positions, width] of frames [bins, 2 · sound_positions].
  Tensor states(const Tensor& frames);

  /// Logits f32 [tokens, vocabulary] of tokens behind a window's frames. Error(Value) for no
  /// tokens, more than text_positions, and those that are not in the vocabulary.
  Tensor logits(const Tensor& frames, std::span<const int> tokens);

  /// The likeliest language of a window; "en" where the model knows no others.
  std::string language(const Tensor& frames);

  /// What is said in samples [count] at config().rate, greedily, window after window: with times
  /// the next one begins where the last time of one stands (Radford et al. 2022). Each segment is
  /// given to `heard` as it comes, which may return false to end it. Error(Value) for no samples, a
  /// language that the model does not know (naming those that it knows), and a translation by a
  /// model that knows one language.
  std::vector<SpeechSegment>
  transcribe(const Tensor& samples, const TranscribeOptions& options = {},
             const std::function<bool(const SpeechSegment&)>& heard = {});

private:
  struct Impl;
  explicit SpeechModel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::models

// A decoder with its weights, a cache of several sequences and the compiled steps that fill it.
#pragma once

#include "egret/compile.h"
#include "models/language/decoder.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace egret::models::language {

/// Logits f32 [tokens, vocabulary] of all tokens [1, tokens] of a text.
struct Whole {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens) const;
};

/// -log p f32 [tokens] of `targets` [1, tokens], each behind the token of `tokens` [1, tokens] at
/// its index and those before.
struct TokenLoss {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens, const Tensor& targets) const;
};

/// A text's embedding f32 [width] before it is made of length 1, from tokens [1, tokens].
struct Embed {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens, Pooling pooling) const;
};

struct CacheSizes {
  std::int64_t sequences = 1;
  std::int64_t capacity = 1; ///< positions of a sequence
  std::int64_t chunk = 1;    ///< most tokens that one read() takes
  DType dtype = DType::F32;  ///< of the cache

  /// How many positions of a sequence attention reads where `used` are: few sizes, so that there
  /// are few traces, and less than eight times as many as are used, or 512.
  std::int64_t visible(std::int64_t used) const;
};
/// Of keys and values of all layers, with scales.
std::int64_t cache_bytes(const LanguageConfig& config, const CacheSizes& sizes);

/// Logits f32 [vocabulary] behind the last of tokens [1, tokens] of one sequence.
struct ReadStep {
  std::shared_ptr<const Decoder> decoder;
  CacheSizes sizes;
  /// `begin`, `sequence` and `visible` as in CachePlace; sequence is [0] where there is only one.
  Tensor operator()(const Weights& weights, const Tensor& tokens, const Tensor& begin,
                    const Tensor& sequence, std::int64_t visible, Cache& cache) const;
};

/// Logits f32 [tokens, vocabulary] behind each of tokens [1, tokens] of the first sequence.
struct CheckStep {
  std::shared_ptr<const Decoder> decoder;
  CacheSizes sizes;
  Tensor operator()(const Weights& weights, const Tensor& tokens, const Tensor& begin,
                    std::int64_t visible, Cache& cache) const;
};

/// Copies a sequence over another one; both i64 [1].
struct CopyStep {
  CacheSizes sizes;
  void operator()(const Tensor& from, const Tensor& to, Cache& cache) const;
};

/// Logits f32 [rows, vocabulary] behind one token [rows, 1] of each of the first sequences.
struct WriteStep {
  std::shared_ptr<const Decoder> decoder;
  CacheSizes sizes;
  Tensor operator()(const Weights& weights, const Tensor& tokens, const Tensor& begin,
                    std::int64_t visible, Cache& cache) const;
};

class CachedModel {
public:
  CachedModel(Decoder decoder, Weights weights, CacheSizes sizes);

  const LanguageConfig& config() const noexcept { return decoder_->config; }
  const CacheSizes& sizes() const noexcept { return sizes_; }
  std::int64_t weight_bytes() const noexcept { return bytes_; }

  /// Error(Value) that begins with `who` unless there are 1 to capacity tokens of the vocabulary.
  void require_tokens(std::span<const int> tokens, const char* who) const;

  /// Logits f32 [tokens, vocabulary] of a text, without the cache.
  Tensor logits(std::span<const int> tokens);

  /// log p of each token but the first, of at least two.
  std::vector<float> log_probabilities(std::span<const int> tokens);

  /// Of length 1, f32 [width].
  std::vector<float> embedding(std::span<const int> tokens, Pooling pooling);

  const std::vector<int>& held(std::size_t sequence) const { return held_[sequence]; }
  /// How many tokens a sequence holds of a prompt's beginning, without the prompt's last token:
  /// that is read in any case, for its logits.
  std::size_t common(std::size_t sequence, std::span<const int> prompt) const;
  /// Lets a sequence hold the first `count` of its tokens only.
  void keep(std::size_t sequence, std::size_t count) { held_[sequence].resize(count); }

  /// Appends 1 to chunk tokens to a sequence that has room for them; logits [vocabulary] behind
  /// the last.
  std::vector<float> read(std::size_t sequence, std::span<const int> tokens);

  static constexpr std::int64_t kMostChecked = 64;
  /// Appends 1 to kMostChecked tokens to the first sequence, which has room for them; logits
  /// [vocabulary] behind each.
  std::vector<std::vector<float>> check(std::span<const int> tokens);
  /// Lets a sequence hold the first `count` tokens that another one holds.
  void copy(std::size_t from, std::size_t to, std::size_t count);

  struct Next {
    std::size_t sequence;
    int token;
  };
  /// Appends one token to each of some sequences (ascending) that have room for it, in one run;
  /// logits [vocabulary] of each, in their order.
  std::vector<std::vector<float>> write(std::span<const Next> next);

private:
  std::shared_ptr<const Decoder> decoder_;
  Weights weights_;
  CacheSizes sizes_;
  std::int64_t bytes_;
  Cache cache_;
  std::vector<std::vector<int>> held_; ///< tokens that each sequence of the cache holds
  Compiled<Whole> whole_;
  Compiled<TokenLoss> token_loss_;
  Compiled<ReadStep> read_;
  Compiled<WriteStep> write_;
  Compiled<CheckStep> check_;
  Compiled<CopyStep> copy_;
  Compiled<Embed> embed_;
};

} // namespace egret::models::language

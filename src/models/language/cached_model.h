// A decoder with its weights, a paged cache of several sequences and the compiled steps that fill
// it.
#pragma once

#include "egret/compile.h"
#include "models/language/block_pool.h"
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
  static constexpr std::int64_t kBlock = 32; ///< positions of a block

  std::int64_t sequences = 1; ///< most at a time
  std::int64_t capacity = 1;  ///< most positions of a sequence
  std::int64_t chunk = 1;     ///< most tokens that one read() takes
  DType dtype = DType::F32;   ///< of the cache
  std::int64_t blocks = 0;    ///< 0: all_blocks()

  /// That all sequences have at their most.
  std::int64_t all_blocks() const { return sequences * ((capacity + kBlock - 1) / kBlock); }
  /// How many positions of a sequence attention reads where `used` are: few sizes, so that there
  /// are few traces, and less than eight times as many as are used, or 512.
  std::int64_t visible(std::int64_t used) const;
};
/// Of keys and values of all layers, with scales.
std::int64_t block_bytes(const LanguageConfig& config, DType dtype);
std::int64_t cache_bytes(const LanguageConfig& config, const CacheSizes& sizes);

/// Logits f32 [vocabulary] behind the last of tokens [1, tokens] of one sequence.
struct ReadStep {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens, const Tensor& put_at,
                    const Tensor& begin, const Tensor& table, Cache& cache) const;
};

/// Logits f32 [rows · tokens, vocabulary] behind each of tokens [rows, tokens], the rows being of
/// different sequences.
struct WriteStep {
  std::shared_ptr<const Decoder> decoder;
  Tensor operator()(const Weights& weights, const Tensor& tokens, const Tensor& put_at,
                    const Tensor& begin, const Tensor& table, Cache& cache) const;
};

/// Copies a block over another one; both i64 [1].
struct CopyStep {
  void operator()(const Tensor& from, const Tensor& to, Cache& cache) const;
};

class CachedModel {
public:
  CachedModel(Decoder decoder, Weights weights, CacheSizes sizes);

  const LanguageConfig& config() const noexcept { return decoder_->config; }
  const CacheSizes& sizes() const noexcept { return sizes_; }
  std::int64_t weight_bytes() const noexcept { return bytes_; }

  /// Error(Value) that begins with `who` unless there are 1 to capacity tokens of the vocabulary.
  void require_tokens(std::span<const int> tokens, const char* who) const;

  /// Error(Memory) that begins with `who`, says how many blocks so many tokens need, and how many
  /// there are and are free.
  [[noreturn]] void refuse(std::size_t tokens, const char* who) const;

  /// Logits f32 [tokens, vocabulary] of a text, without the cache.
  Tensor logits(std::span<const int> tokens);

  /// log p of each token but the first, of at least two.
  std::vector<float> log_probabilities(std::span<const int> tokens);

  /// Of length 1, f32 [width].
  std::vector<float> embedding(std::span<const int> tokens, Pooling pooling);

  const BlockPool& pool() const { return *pool_; }
  /// An empty one. The model outlives it.
  BlockSequence sequence() const { return BlockSequence(pool_); }
  /// BlockSequence::reserve(), with the copy.
  bool reserve(BlockSequence& sequence, std::size_t count);

  // Tokens are appended to sequences that have reserved positions for them.

  /// 1 to chunk tokens; logits [vocabulary] behind the last.
  std::vector<float> read(BlockSequence& sequence, std::span<const int> tokens);

  static constexpr std::int64_t kMostChecked = 64;
  /// 1 to kMostChecked tokens; logits [vocabulary] behind each.
  std::vector<std::vector<float>> check(BlockSequence& sequence, std::span<const int> tokens);

  struct Next {
    BlockSequence* sequence;
    int token;
  };
  /// One token to each of some sequences, in one run; logits [vocabulary] of each.
  std::vector<std::vector<float>> write(std::span<const Next> next);

private:
  /// Inputs of a step for `rows` rows of `tokens` tokens each.
  struct Place {
    Tensor put_at, begin, table;
  };
  Place place_of(std::span<const BlockSequence* const> sequences, std::size_t rows,
                 std::size_t tokens) const;

  std::shared_ptr<const Decoder> decoder_;
  Weights weights_;
  CacheSizes sizes_;
  std::int64_t bytes_;
  Cache cache_;
  std::shared_ptr<BlockPool> pool_;
  Compiled<Whole> whole_;
  Compiled<TokenLoss> token_loss_;
  Compiled<ReadStep> read_;
  Compiled<WriteStep> write_;
  Compiled<WriteStep> check_;
  Compiled<CopyStep> copy_;
  Compiled<Embed> embed_;
};

} // namespace egret::models::language

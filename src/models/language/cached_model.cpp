#include "models/language/cached_model.h"

#include "egret/functional.h"
#include "models/pooling.h"
#include "support/fail.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace egret::models::language {

namespace {

/// Any number of tokens up to `most` on axis 1 of the first `arguments` behind argument 0, in a
/// trace for up to 16, one for up to 64, and so on.
CompileOptions of_any_length(const char* name, std::int64_t most, int arguments = 1) {
  CompileOptions options{.name = name};
  if (most > 1) {
    NamedDim tokens{.name = "tokens", .least = 1, .most = most};
    for (int i = 1; i <= arguments; ++i)
      tokens.at.push_back({static_cast<std::size_t>(i), 1});
    for (std::int64_t size = 16; size < most; size *= 4)
      tokens.buckets.push_back(size);
    options.dims = {tokens};
  }
  return options;
}

std::int64_t bytes_in(Weights& weights) {
  struct Sum final : TreeVisitor {
    std::int64_t bytes = 0;
    void tensor(const std::string&, Tensor& value) override {
      bytes += value.numel() * static_cast<std::int64_t>(size_of(value.dtype()));
    }
    bool wants_paths() const override { return false; }
  } sum;
  visit_tree(weights, sum);
  return sum.bytes;
}

Tensor integers(std::span<const int> values, const Shape& shape) {
  return tensor(std::vector<std::int64_t>(values.begin(), values.end()), shape);
}

std::vector<std::vector<float>> rows_of(const Tensor& logits, std::int64_t vocabulary) {
  const std::vector<float> all = logits.to_vector<float>();
  std::vector<std::vector<float>> rows;
  for (auto at = all.begin(); at != all.end(); at += vocabulary)
    rows.emplace_back(at, at + vocabulary);
  return rows;
}

} // namespace

std::int64_t CacheSizes::visible(std::int64_t used) const {
  constexpr std::int64_t kLeast = 256, kGrowth = 4;
  for (std::int64_t size = kLeast; size < capacity / 2; size *= kGrowth)
    if (used <= size)
      return size;
  return capacity;
}

std::int64_t block_bytes(const LanguageConfig& c, DType dtype) {
  const auto bytes = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t scale = is_float(dtype) ? 0 : 4;
  return 2 * c.layers * c.kv_heads * CacheSizes::kBlock * (c.head_size * bytes + scale);
}

std::int64_t cache_bytes(const LanguageConfig& config, const CacheSizes& sizes) {
  return (sizes.blocks > 0 ? sizes.blocks : sizes.all_blocks()) * block_bytes(config, sizes.dtype);
}

Tensor Whole::operator()(const Weights& weights, const Tensor& tokens) const {
  return decoder->logits(weights, decoder->hidden(weights, tokens, nullptr));
}

Tensor TokenLoss::operator()(const Weights& weights, const Tensor& tokens,
                             const Tensor& targets) const {
  return cross_entropy(decoder->logits(weights, decoder->hidden(weights, tokens, nullptr)),
                       targets[0], {.reduction = Reduction::None});
}

Tensor ReadStep::operator()(const Weights& weights, const Tensor& tokens, const Tensor& put_at,
                            const Tensor& begin, const Tensor& table, Cache& cache) const {
  const CachePlace place{cache, CacheSizes::kBlock, begin, put_at, table};
  return decoder->logits(weights, decoder->hidden(weights, tokens, &place)[-1]);
}

Tensor WriteStep::operator()(const Weights& weights, const Tensor& tokens, const Tensor& put_at,
                             const Tensor& begin, const Tensor& table, Cache& cache) const {
  const CachePlace place{cache, CacheSizes::kBlock, begin, put_at, table};
  return decoder->logits(weights, decoder->hidden(weights, tokens, &place));
}

void CopyStep::operator()(const Tensor& from, const Tensor& to, Cache& cache) const {
  const Tensor places = positions(Expr(CacheSizes::kBlock));
  const auto copy = [&](Tensor& held) {
    held.assign(index_put(held, places + to * CacheSizes::kBlock,
                          take(held, places + from * CacheSizes::kBlock, 1), 1));
  };
  for (CacheLayer& layer : cache.layers)
    for (CachedVectors* held : {&layer.keys, &layer.values}) {
      copy(held->values);
      if (held->scales)
        copy(*held->scales);
    }
}

Tensor Embed::operator()(const Weights& weights, const Tensor& tokens, Pooling pooling) const {
  const Tensor hidden = decoder->hidden(weights, tokens, nullptr).to(DType::F32);
  return pooled(hidden.unsqueeze(0), pooling).squeeze(0);
}

namespace {

CacheSizes with_blocks(CacheSizes sizes) {
  if (sizes.blocks == 0)
    sizes.blocks = sizes.all_blocks();
  return sizes;
}

} // namespace

CachedModel::CachedModel(Decoder decoder, Weights weights, CacheSizes sizes)
    : decoder_(std::make_shared<const Decoder>(std::move(decoder))), weights_(std::move(weights)),
      sizes_(with_blocks(sizes)), bytes_(bytes_in(weights_)),
      cache_(decoder_->cache(sizes_.blocks * CacheSizes::kBlock, sizes_.dtype)),
      pool_(std::make_shared<BlockPool>(sizes_.blocks, CacheSizes::kBlock)),
      whole_(Whole{decoder_}, of_any_length("language model", sizes.capacity)),
      token_loss_(TokenLoss{decoder_},
                  of_any_length("language model, likelihood", sizes.capacity, 2)),
      read_(ReadStep{decoder_}, of_any_length("language model, prompt", sizes.chunk, 2)),
      write_(WriteStep{decoder_}, {.name = "language model, step"}),
      check_(WriteStep{decoder_},
             of_any_length("language model, check", std::min(kMostChecked, sizes.capacity), 2)),
      copy_(CopyStep{}, {.name = "language model, copy of a block"}),
      embed_(Embed{decoder_}, of_any_length("language model, embedding", sizes.capacity)) {}

void CachedModel::require_tokens(std::span<const int> tokens, const char* who) const {
  if (tokens.empty())
    fail(ErrorKind::Value, "{}: no tokens", who);
  if (std::ssize(tokens) > sizes_.capacity)
    fail(ErrorKind::Value, "{}: {} tokens, the context holds {}", who, tokens.size(),
         sizes_.capacity);
  for (const int token : tokens)
    if (token < 0 || token >= config().vocabulary)
      fail(ErrorKind::Value, "{}: token {} is not in the vocabulary of {}", who, token,
           config().vocabulary);
}

void CachedModel::refuse(std::size_t tokens, const char* who) const {
  fail(ErrorKind::Memory,
       "{}: {} tokens need {} blocks of {} positions, the cache has {}, of which {} are free", who,
       tokens, pool_->blocks_for(tokens), pool_->positions(), pool_->size(), pool_->available());
}

Tensor CachedModel::logits(std::span<const int> tokens) {
  require_tokens(tokens, "logits");
  return whole_(weights_, integers(tokens, {1, std::ssize(tokens)}));
}

std::vector<float> CachedModel::log_probabilities(std::span<const int> tokens) {
  require_tokens(tokens, "log_probabilities");
  if (tokens.size() < 2)
    fail(ErrorKind::Value, "log_probabilities: one token; nothing follows it");
  const Shape shape = {1, std::ssize(tokens) - 1};
  const Tensor loss = token_loss_(weights_, integers(tokens.first(tokens.size() - 1), shape),
                                  integers(tokens.subspan(1), shape));
  return (-loss).to_vector<float>();
}

std::vector<float> CachedModel::embedding(std::span<const int> tokens, Pooling pooling) {
  require_tokens(tokens, "embedding");
  std::vector<float> values =
      embed_(weights_, integers(tokens, {1, std::ssize(tokens)}), pooling).to_vector<float>();
  make_unit(values);
  return values;
}

bool CachedModel::reserve(BlockSequence& sequence, std::size_t count) {
  return sequence.reserve(count, [&](BlockPool::Block from, BlockPool::Block to) {
    copy_(tensor<std::int64_t>({from}), tensor<std::int64_t>({to}), cache_);
  });
}

CachedModel::Place CachedModel::place_of(std::span<const BlockSequence* const> sequences,
                                         std::size_t rows, std::size_t tokens) const {
  std::size_t most = 0; // positions that are used
  for (const BlockSequence* one : sequences)
    most = std::max(most, one->size() + tokens);
  ensure(std::cmp_less_equal(most, sizes_.capacity), "a sequence beyond its capacity");
  const auto blocks = static_cast<std::size_t>(
      pool_->blocks_for(static_cast<std::size_t>(sizes_.visible(static_cast<std::int64_t>(most)))));
  std::vector<std::int64_t> put_at(rows * tokens, BlockPool::kNone), begin(rows, 0),
      table(rows * blocks, BlockPool::kNone);
  for (std::size_t row = 0; row < sequences.size(); ++row) {
    const BlockSequence& one = *sequences[row];
    begin[row] = std::ssize(one.tokens());
    for (std::size_t i = 0; i < tokens; ++i)
      put_at[row * tokens + i] = one.row(one.size() + i);
    std::ranges::copy(one.blocks().first(std::min(one.blocks().size(), blocks)),
                      table.begin() + static_cast<std::ptrdiff_t>(row * blocks));
  }
  const auto n = static_cast<std::int64_t>(rows);
  return {tensor(put_at, Shape{n, static_cast<std::int64_t>(tokens)}), tensor(begin),
          tensor(table, Shape{n, static_cast<std::int64_t>(blocks)})};
}

std::vector<float> CachedModel::read(BlockSequence& sequence, std::span<const int> tokens) {
  if (tokens.size() == 1)
    return write(std::array{Next{&sequence, tokens[0]}})[0];
  const Place at = place_of(std::array<const BlockSequence*, 1>{&sequence}, 1, tokens.size());
  const Tensor logits = read_(weights_, integers(tokens, {1, std::ssize(tokens)}), at.put_at,
                              at.begin, at.table, cache_);
  sequence.append(tokens);
  return logits.to_vector<float>();
}

std::vector<std::vector<float>> CachedModel::check(BlockSequence& sequence,
                                                   std::span<const int> tokens) {
  ensure(std::ssize(tokens) <= kMostChecked, "more tokens than are checked at once");
  const Place at = place_of(std::array<const BlockSequence*, 1>{&sequence}, 1, tokens.size());
  const Tensor logits = check_(weights_, integers(tokens, {1, std::ssize(tokens)}), at.put_at,
                               at.begin, at.table, cache_);
  sequence.append(tokens);
  return rows_of(logits, config().vocabulary);
}

std::vector<std::vector<float>> CachedModel::write(std::span<const Next> next) {
  // As many rows as a power of two, so that there are few traces; the others are of no sequence.
  const std::size_t rows =
      std::min(std::bit_ceil(next.size()), static_cast<std::size_t>(sizes_.sequences));
  std::vector<std::int64_t> tokens(rows, 0);
  std::vector<const BlockSequence*> sequences;
  for (std::size_t i = 0; i < next.size(); ++i) {
    tokens[i] = next[i].token;
    sequences.push_back(next[i].sequence);
  }
  const Place at = place_of(sequences, rows, 1);
  const Tensor logits = write_(weights_, tensor(tokens, Shape{std::ssize(tokens), 1}), at.put_at,
                               at.begin, at.table, cache_);
  std::vector<std::vector<float>> each = rows_of(logits, config().vocabulary);
  each.resize(next.size());
  for (const Next& one : next)
    one.sequence->append(std::span(&one.token, 1));
  return each;
}

} // namespace egret::models::language

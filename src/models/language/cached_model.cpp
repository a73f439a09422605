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

std::int64_t cache_bytes(const LanguageConfig& c, const CacheSizes& sizes) {
  const auto bytes = static_cast<std::int64_t>(size_of(sizes.dtype));
  const std::int64_t scale = is_float(sizes.dtype) ? 0 : 4;
  return 2 * c.layers * c.kv_heads * sizes.sequences * sizes.capacity *
         (c.head_size * bytes + scale);
}

Tensor Whole::operator()(const Weights& weights, const Tensor& tokens) const {
  return decoder->logits(weights, decoder->hidden(weights, tokens, nullptr));
}

Tensor TokenLoss::operator()(const Weights& weights, const Tensor& tokens,
                             const Tensor& targets) const {
  return cross_entropy(decoder->logits(weights, decoder->hidden(weights, tokens, nullptr)),
                       targets[0], {.reduction = Reduction::None});
}

Tensor ReadStep::operator()(const Weights& weights, const Tensor& tokens, const Tensor& begin,
                            const Tensor& sequence, std::int64_t visible, Cache& cache) const {
  CachePlace place{cache, sizes.sequences, sizes.capacity, visible, begin, {}};
  if (sizes.sequences > 1)
    place.sequence = sequence;
  return decoder->logits(weights, decoder->hidden(weights, tokens, &place)[-1]);
}

Tensor CheckStep::operator()(const Weights& weights, const Tensor& tokens, const Tensor& begin,
                             std::int64_t visible, Cache& cache) const {
  CachePlace place{cache, sizes.sequences, sizes.capacity, visible, begin, {}};
  return decoder->logits(weights, decoder->hidden(weights, tokens, &place));
}

void CopyStep::operator()(const Tensor& from, const Tensor& to, Cache& cache) const {
  const Tensor places = positions(Expr(sizes.capacity));
  const auto copy = [&](Tensor& held) {
    held.assign(index_put(held, places + to * sizes.capacity,
                          take(held, places + from * sizes.capacity, 1), 1));
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

Tensor WriteStep::operator()(const Weights& weights, const Tensor& tokens, const Tensor& begin,
                             std::int64_t visible, Cache& cache) const {
  const CachePlace place{cache, sizes.sequences, sizes.capacity, visible, begin, {}};
  return decoder->logits(weights, decoder->hidden(weights, tokens, &place));
}

CachedModel::CachedModel(Decoder decoder, Weights weights, CacheSizes sizes)
    : decoder_(std::make_shared<const Decoder>(std::move(decoder))), weights_(std::move(weights)),
      sizes_(sizes), bytes_(bytes_in(weights_)),
      cache_(decoder_->cache(sizes.sequences, sizes.capacity, sizes.dtype)),
      held_(static_cast<std::size_t>(sizes.sequences)),
      whole_(Whole{decoder_}, of_any_length("language model", sizes.capacity)),
      token_loss_(TokenLoss{decoder_},
                  of_any_length("language model, likelihood", sizes.capacity, 2)),
      read_(ReadStep{decoder_, sizes}, of_any_length("language model, prompt", sizes.chunk)),
      write_(WriteStep{decoder_, sizes}, {.name = "language model, step"}),
      check_(CheckStep{decoder_, sizes},
             of_any_length("language model, check", std::min(kMostChecked, sizes.capacity))),
      copy_(CopyStep{sizes}, {.name = "language model, copy of a sequence"}),
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

std::size_t CachedModel::common(std::size_t sequence, std::span<const int> prompt) const {
  const std::vector<int>& held = held_[sequence];
  return static_cast<std::size_t>(
      std::mismatch(prompt.begin(), prompt.end() - 1, held.begin(), held.end()).first -
      prompt.begin());
}

std::vector<float> CachedModel::read(std::size_t sequence, std::span<const int> tokens) {
  std::vector<int>& held = held_[sequence];
  ensure(std::ssize(held) + std::ssize(tokens) <= sizes_.capacity, "a sequence beyond its cache");
  if (tokens.size() == 1 && sequence == 0)
    return write(std::array{Next{0, tokens[0]}})[0];
  const Tensor logits = read_(weights_, integers(tokens, {1, std::ssize(tokens)}),
                              tensor<std::int64_t>({std::ssize(held)}),
                              tensor<std::int64_t>({static_cast<std::int64_t>(sequence)}),
                              sizes_.visible(std::ssize(held) + std::ssize(tokens)), cache_);
  held.insert(held.end(), tokens.begin(), tokens.end());
  return logits.to_vector<float>();
}

std::vector<std::vector<float>> CachedModel::check(std::span<const int> tokens) {
  std::vector<int>& held = held_[0];
  ensure(std::ssize(tokens) <= kMostChecked &&
             std::ssize(held) + std::ssize(tokens) <= sizes_.capacity,
         "a sequence beyond its cache");
  const Tensor logits = check_(weights_, integers(tokens, {1, std::ssize(tokens)}),
                               tensor<std::int64_t>({std::ssize(held)}),
                               sizes_.visible(std::ssize(held) + std::ssize(tokens)), cache_);
  held.insert(held.end(), tokens.begin(), tokens.end());
  return rows_of(logits, config().vocabulary);
}

void CachedModel::copy(std::size_t from, std::size_t to, std::size_t count) {
  copy_(tensor<std::int64_t>({static_cast<std::int64_t>(from)}),
        tensor<std::int64_t>({static_cast<std::int64_t>(to)}), cache_);
  held_[to].assign(held_[from].begin(), held_[from].begin() + static_cast<std::ptrdiff_t>(count));
}

std::vector<std::vector<float>> CachedModel::write(std::span<const Next> next) {
  // As many rows as a power of two, so that there are few traces. Rows of other sequences write
  // behind what those hold, where nothing is read before it is written again.
  const auto rows = std::min(std::bit_ceil(next.back().sequence + 1), held_.size());
  std::vector<std::int64_t> tokens(rows, 0), begin(rows);
  for (const Next& one : next)
    tokens[one.sequence] = one.token;
  std::int64_t most = 0; // positions of those that are used
  for (std::size_t i = 0; i < rows; ++i) {
    const bool used = std::ranges::find(next, i, &Next::sequence) != next.end();
    if (!used && std::ssize(held_[i]) == sizes_.capacity)
      held_[i].pop_back();
    ensure(std::ssize(held_[i]) < sizes_.capacity, "a sequence beyond its cache");
    begin[i] = std::ssize(held_[i]);
    if (used)
      most = std::max(most, begin[i] + 1);
  }
  const auto n = static_cast<std::int64_t>(rows);
  const Tensor logits =
      write_(weights_, tensor(tokens, Shape{n, 1}), tensor(begin), sizes_.visible(most), cache_);
  const std::vector<float> all = logits.to_vector<float>();
  const auto vocabulary = static_cast<std::size_t>(config().vocabulary);
  std::vector<std::vector<float>> each;
  for (const Next& one : next) {
    held_[one.sequence].push_back(one.token);
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(one.sequence * vocabulary);
    each.emplace_back(at, at + static_cast<std::ptrdiff_t>(vocabulary));
  }
  return each;
}

} // namespace egret::models::language

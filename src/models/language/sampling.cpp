#include "models/language/sampling.h"

#include "data/random.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace egret::models::language {

namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

struct Candidate {
  int token;
  float logit;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

/// A token by the options but for penalties. Advances `state`.
int sampled(std::span<const float> logits, const GenerateOptions& o, std::uint64_t& state) {
  if (o.temperature == 0)
    return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  std::vector<Candidate> left;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] > kForbidden)
      left.push_back({static_cast<int>(i), logits[i]});
  if (left.empty())
    return static_cast<int>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (o.top_k > 0 && o.top_k < std::ssize(left)) {
    std::nth_element(left.begin(), left.begin() + o.top_k, left.end(), likelier);
    left.resize(static_cast<std::size_t>(o.top_k));
  }
  std::sort(left.begin(), left.end(), likelier);
  std::vector<double> chance;
  double total = 0;
  for (const Candidate& c : left) {
    chance.push_back(std::exp((static_cast<double>(c.logit) - left[0].logit) / o.temperature));
    total += chance.back();
  }
  // chance[0] is 1 and all descend, so each limit cuts the end off.
  std::size_t kept = 0;
  double sum = 0;
  while (kept < chance.size() && sum < o.top_p * total && chance[kept] >= o.min_p)
    sum += chance[kept++];
  kept = std::max<std::size_t>(kept, 1);
  double place =
      static_cast<double>(data::next_random(state) >> 11U) * 0x1p-53 * std::max(sum, 1.0);
  for (std::size_t i = 0; i < kept; ++i) {
    place -= chance[i];
    if (place < 0 && chance[i] > 0)
      return left[i].token;
  }
  return left[0].token; // sums differ in their last digits
}

Logprobs logprobs_of(std::span<const float> logits, int token, std::int64_t count) {
  const auto most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float x : logits)
    sum += std::exp(static_cast<double>(x) - most);
  const auto value = [&, shift = most + std::log(sum)](int i) {
    return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(i)]) - shift);
  };
  std::vector<int> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept = std::min<std::ptrdiff_t>(count, std::ssize(order));
  std::partial_sort(order.begin(), order.begin() + kept, order.end(), [&](int a, int b) {
    return likelier({a, logits[static_cast<std::size_t>(a)]},
                    {b, logits[static_cast<std::size_t>(b)]});
  });
  Logprobs out{value(token), {}};
  for (std::ptrdiff_t i = 0; i < kept; ++i) {
    const int one = order[static_cast<std::size_t>(i)];
    out.top.push_back({one, value(one)});
  }
  return out;
}

} // namespace

void require_valid(const GenerateOptions& o) {
  const auto require = [](bool held, const char* name, auto value, const char* range) {
    if (!held)
      fail(ErrorKind::Value, "generate: {} is {}; it must be {}", name, value, range);
  };
  require(o.max_new >= 0, "max_new", o.max_new, "at least 0");
  require(o.temperature >= 0 && std::isfinite(o.temperature), "temperature", o.temperature,
          "at least 0");
  require(o.top_k >= 0, "top_k", o.top_k, "at least 0");
  require(o.top_p > 0 && o.top_p <= 1, "top_p", o.top_p, "above 0 and at most 1");
  require(o.min_p >= 0 && o.min_p <= 1, "min_p", o.min_p, "from 0 to 1");
  require(o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty), "repetition_penalty",
          o.repetition_penalty, "above 0");
  require(std::isfinite(o.presence_penalty), "presence_penalty", o.presence_penalty, "finite");
  require(o.top_logprobs >= -1, "top_logprobs", o.top_logprobs, "at least -1");
  require(o.lookup >= 0 && o.lookup <= 63, "lookup", o.lookup, "from 0 to 63");
  require(std::isfinite(o.frequency_penalty), "frequency_penalty", o.frequency_penalty, "finite");
}

Sampler::Sampler(GenerateOptions options, std::span<const int> prompt, std::vector<int> stop)
    : options_(std::move(options)), stop_(std::move(stop)), seen_(prompt.begin(), prompt.end()),
      state_(options_.seed) {
  if (options_.grammar)
    matcher_.emplace(*options_.grammar);
}

bool Sampler::stops(int token) const {
  return std::find(stop_.begin(), stop_.end(), token) != stop_.end();
}

/// Leaves the tokens that the grammar allows; false where it allows none.
bool Sampler::forbid(std::span<float> logits) {
  std::vector<std::uint64_t> words((logits.size() + 63) / 64);
  matcher_->allow(words);
  const bool ends = matcher_->may_end();
  for (const int token : stop_)
    if (const auto at = static_cast<std::size_t>(token); token >= 0 && at < logits.size()) {
      const std::uint64_t one = std::uint64_t{1} << (at % 64);
      words[at / 64] = ends ? words[at / 64] | one : words[at / 64] & ~one;
    }
  bool some = false;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((words[i / 64] >> (i % 64) & 1U) == 0)
      logits[i] = kForbidden;
    else
      some = true;
  if (!some && !ends)
    fail(ErrorKind::Value,
         "generate: no token of the vocabulary continues the text by the grammar");
  return some;
}

std::optional<Draw> Sampler::next(std::span<const float> given) {
  std::vector<float> logits(given.begin(), given.end());
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); }))
    fail(ErrorKind::Value, "generate: the model gives NaN; its weights are of no use");
  const GenerateOptions& o = options_;
  if (o.repetition_penalty != 1)
    for (const int token : seen_) {
      float& logit = logits[static_cast<std::size_t>(token)];
      const auto penalty = static_cast<float>(o.repetition_penalty);
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  if (o.presence_penalty != 0 || o.frequency_penalty != 0)
    for (const auto& [token, times] : drawn_)
      logits[static_cast<std::size_t>(token)] -=
          static_cast<float>(o.presence_penalty + o.frequency_penalty * static_cast<double>(times));
  if (matcher_ && !forbid(logits))
    return {};
  const int token = sampled(logits, o, state_);
  seen_.insert(token);
  ++drawn_[token];
  if (matcher_ && !stops(token) && !matcher_->take(token))
    fail(ErrorKind::Value, "generate: the text nests deeper than grammars may");
  Draw draw{token, {}};
  if (o.top_logprobs >= 0)
    draw.logprobs = logprobs_of(given, token, o.top_logprobs);
  return draw;
}

} // namespace egret::models::language

#include "models/language/sampling.h"

#include "data/random.h"
#include "support/fail.h"

#include <algorithm>
#include <cmath>

namespace egret::models::language {

namespace {

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
    left.push_back({static_cast<int>(i), logits[i]});
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
  require(std::isfinite(o.frequency_penalty), "frequency_penalty", o.frequency_penalty, "finite");
}

Sampler::Sampler(GenerateOptions options, std::span<const int> prompt)
    : options_(std::move(options)), seen_(prompt.begin(), prompt.end()), state_(options_.seed) {}

int Sampler::next(std::span<const float> given) {
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
  const int token = sampled(logits, o, state_);
  seen_.insert(token);
  ++drawn_[token];
  return token;
}

} // namespace egret::models::language

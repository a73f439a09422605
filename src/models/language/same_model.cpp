#include "models/language/same_model.h"

#include <algorithm>
#include <cmath>

namespace egret::models::language {

namespace {

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-5 * std::abs(b);
}
bool same_rotary(const Rotary& a, const Rotary& b) {
  return near(a.factor, b.factor) && std::ranges::equal(a.frequencies, b.frequencies, near);
}

bool same_sizes(const LanguageConfig& a, const LanguageConfig& b) {
  const bool dense = std::ranges::find(b.expert_layer, false) != b.expert_layer.end();
  return a.vocabulary == b.vocabulary && a.width == b.width && a.layers == b.layers &&
         a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_size == b.head_size &&
         a.context == b.context && (!dense || a.hidden == b.hidden) && a.experts == b.experts &&
         a.experts_used == b.experts_used && (b.experts == 0 || a.expert_hidden == b.expert_hidden);
}

} // namespace

const char* difference(const LanguageConfig& read, const LanguageConfig& wanted) {
  if (!same_sizes(read, wanted))
    return "its sizes";
  if (!near(read.norm_eps, wanted.norm_eps))
    return "what norms add";
  if (read.activation != wanted.activation)
    return "the activation";
  if (read.sliding != wanted.sliding || read.window != wanted.window)
    return "which layers slide";
  if (!same_rotary(read.rotary, wanted.rotary))
    return "the scaling of positions";
  if (read.sliding_rotary.has_value() != wanted.sliding_rotary.has_value() ||
      (wanted.sliding_rotary && !same_rotary(*read.sliding_rotary, *wanted.sliding_rotary)))
    return "the scaling of positions in sliding layers";
  if (!near(read.attention_scale, wanted.attention_scale))
    return "the scale of attention";
  if (!near(read.attention_softcap.value_or(0), wanted.attention_softcap.value_or(0)) ||
      !near(read.logit_softcap.value_or(0), wanted.logit_softcap.value_or(0)))
    return "soft caps";
  if (!near(read.embedding_scale, wanted.embedding_scale))
    return "the scale of the embedding";
  if (read.expert_layer != wanted.expert_layer)
    return "which layers have experts";
  if (wanted.experts > 0 && read.normalize_experts != wanted.normalize_experts)
    return "weights of experts";
  return nullptr;
}

std::vector<std::int64_t> interleaved_rows(const LanguageConfig& config, std::int64_t heads) {
  const auto pairs = static_cast<std::int64_t>(config.rotary.frequencies.size());
  std::vector<std::int64_t> rows;
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t i = 0; i < config.head_size; ++i)
      rows.push_back(head * config.head_size + (i < 2 * pairs ? i / 2 + i % 2 * pairs : i));
  return rows;
}

} // namespace egret::models::language

// Frequencies of rotary positions as modeling_rope_utils.py of transformers computes them.
#include "models/language/config.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace egret::models::language {

namespace {

constexpr double kMost = 1e12; // of any number in the configuration

/// Llama 3's scaling: long waves divided by `factor`, short ones kept, between them a blend.
void scale_as_llama3(std::vector<double>& frequencies, Keys& keys) {
  const double factor = keys.number({"factor"}, 1e-6, kMost);
  const double low = keys.number({"low_freq_factor"}, 1e-6, kMost);
  const double high = keys.number({"high_freq_factor"}, 1e-6, kMost);
  const double original = keys.number({"original_max_position_embeddings"}, 1, kMost);
  for (double& f : frequencies) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave > original / low) {
      f /= factor;
    } else if (wave >= original / high) {
      const double smooth = (original / wave - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
    }
  }
}

/// YaRN (Peng et al. 2023): returns the factor of cosine and sine.
double scale_as_yarn(std::vector<double>& frequencies, Keys& keys, double base, double most) {
  const double original = keys.number({"original_max_position_embeddings"}, 1, kMost, most);
  const double factor = keys.number({"factor"}, 1e-6, kMost, most / original);
  const double fast = keys.number({"beta_fast"}, 1e-6, kMost, 32);
  const double slow = keys.number({"beta_slow"}, 1e-6, kMost, 1);
  const auto dims = 2 * static_cast<double>(frequencies.size());
  const auto corrected = [&](double rotations) {
    return dims * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = corrected(fast), high = corrected(slow);
  if (keys.flag({"truncate"}, true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, dims - 1);
  if (low == high)
    high += 0.001;
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / factor * ramp + frequencies[i] * (1 - ramp);
  }
  const double scale = keys.number({"mscale"}, 0, kMost, 0),
               all = keys.number({"mscale_all_dim"}, 0, kMost, 0);
  return keys.number({"attention_factor"}, 0, kMost,
                     scale != 0 && all != 0 ? yarn_growth(factor, scale) / yarn_growth(factor, all)
                                            : yarn_growth(factor));
}

/// LongRoPE (Ding et al. 2024): a divisor for each frequency, one list for contexts up to the
/// original one and one for longer ones.
double scale_as_longrope(std::vector<double>& frequencies, Keys& keys, double most, double used) {
  const double original = keys.number({"original_max_position_embeddings"}, 1, kMost, most);
  const auto longer = keys.numbers({"long_factor"}), shorter = keys.numbers({"short_factor"});
  const auto& divisors = used > original ? longer : shorter;
  if (divisors.size() != frequencies.size())
    fail(ErrorKind::File, "{}: {} factors for {} frequencies", keys.where(), divisors.size(),
         frequencies.size());
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    if (!(divisors[i] > 0))
      fail(ErrorKind::File, "{}: a factor of a frequency is {}", keys.where(), divisors[i]);
    frequencies[i] /= divisors[i];
  }
  const double factor = keys.number({"factor"}, 1e-6, kMost, most / original);
  return keys.number({"attention_factor"}, 0, kMost,
                     factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original)));
}

} // namespace

double yarn_growth(double factor, double scale) {
  return factor <= 1 ? 1.0 : 0.1 * scale * std::log(factor) + 1;
}

Rotary rotary_of(Keys& keys, std::int64_t head_size, std::int64_t most, std::int64_t used) {
  const std::string type = keys.text({"rope_type", "type"}, "default");
  const double base = keys.number({"rope_theta"}, 1, kMost, 10000);
  const double part = keys.number({"partial_rotary_factor"}, 0, 1, 1);
  // A part that is a quotient of two sizes may come out a rounding below a whole number.
  const auto dims = static_cast<std::int64_t>(static_cast<double>(head_size) * part + 1e-9);
  if (dims < 2 || dims % 2 != 0)
    fail(ErrorKind::File, "{}: {} of the {} dims of a head turn; pairs are needed", keys.where(),
         dims, head_size);
  std::vector<double> frequencies;
  for (std::int64_t i = 0; i < dims; i += 2)
    frequencies.push_back(1 / std::pow(base, static_cast<double>(i) / static_cast<double>(dims)));
  Rotary rotary;
  if (type == "linear") {
    const double factor = keys.number({"factor"}, 1e-6, kMost);
    for (double& f : frequencies)
      f /= factor;
  } else if (type == "llama3") {
    scale_as_llama3(frequencies, keys);
  } else if (type == "yarn") {
    rotary.factor = scale_as_yarn(frequencies, keys, base, static_cast<double>(most));
  } else if (type == "longrope" || type == "su") {
    rotary.factor =
        scale_as_longrope(frequencies, keys, static_cast<double>(most), static_cast<double>(used));
  } else if (type == "default") {
    rotary.factor = keys.number({"attention_factor"}, 0, kMost, 1);
  } else {
    fail(ErrorKind::Unsupported,
         "{}: egret does not know the rope_type '{}'; it knows default, linear, llama3, yarn, "
         "longrope",
         keys.where(), printable(type));
  }
  rotary.frequencies.assign(frequencies.begin(), frequencies.end());
  return rotary;
}

} // namespace egret::models::language

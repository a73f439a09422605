#include "models/speech/log_mel.h"

#include "egret/functional.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

namespace egret::models::speech {

namespace {

// Slaney's scale: linear up to 1000 Hz, which are 15 mels, then a factor of 6.4 for 27 mels.
constexpr double kLinearHertz = 1000, kLinearMels = 15;
const double kMelsPerLog = 27 / std::log(6.4);

double mels_of(double hertz) {
  return hertz < kLinearHertz ? 3 * hertz / 200
                              : kLinearMels + std::log(hertz / kLinearHertz) * kMelsPerLog;
}
double hertz_of(double mels) {
  return mels < kLinearMels ? 200 * mels / 3
                            : kLinearHertz * std::exp((mels - kLinearMels) / kMelsPerLog);
}

} // namespace

Tensor mel_filters(const SpectrumSizes& s) {
  const std::int64_t frequencies = s.window / 2 + 1;
  const double highest = static_cast<double>(s.rate) / 2;
  const auto corner = [&](std::int64_t i) {
    return hertz_of(mels_of(highest) * static_cast<double>(i) / static_cast<double>(s.bins + 1));
  };
  std::vector<float> weights;
  for (std::int64_t bin = 0; bin < s.bins; ++bin) {
    const double low = corner(bin), top = corner(bin + 1), high = corner(bin + 2);
    for (std::int64_t i = 0; i < frequencies; ++i) {
      const double hertz = highest * static_cast<double>(i) / static_cast<double>(frequencies - 1);
      const double inside = std::min((hertz - low) / (top - low), (high - hertz) / (high - top));
      weights.push_back(static_cast<float>(std::max(inside, 0.0) * 2 / (high - low)));
    }
  }
  return tensor(weights, Shape{s.bins, frequencies});
}

Tensor spectrum_matrices(std::int64_t window) {
  const std::int64_t frequencies = window / 2 + 1;
  std::vector<float> values;
  for (const bool imaginary : {false, true})
    for (std::int64_t k = 0; k < frequencies; ++k)
      for (std::int64_t n = 0; n < window; ++n) {
        const double turn = 2 * std::numbers::pi / static_cast<double>(window);
        const double hann = 0.5 - 0.5 * std::cos(turn * static_cast<double>(n));
        const double angle = turn * static_cast<double>(k * n % window);
        values.push_back(
            static_cast<float>(hann * (imaginary ? -std::sin(angle) : std::cos(angle))));
      }
  return tensor(values, Shape{2, frequencies, window});
}

Tensor log_mel(const Tensor& samples, const Tensor& filters, const Tensor& spectra,
               const SpectrumSizes& s) {
  const std::int64_t side = s.window / 2, count = samples.size(0);
  const Tensor mirrored = pad(samples.to(DType::F32), {side}, {side}, PadMode::Reflect);
  const Tensor windows = unfold(mirrored, 0, s.window, s.hop).narrow(0, 0, count / s.hop);
  const Tensor parts = matmul(spectra, windows.transpose()); // [2, frequencies, frames]
  const Tensor power = (parts * parts).sum(0);
  const Tensor decades = log10(maximum(matmul(filters, power), 1e-10));
  return (maximum(decades, decades.max() - 8) + 4) * 0.25;
}

} // namespace egret::models::speech

// The front end of speech models: from samples to a logarithmic mel spectrogram.
#pragma once

#include "egret/tensor.h"

#include <cstdint>

namespace egret::models::speech {

struct SpectrumSizes {
  std::int64_t rate, hop, window, bins;
};

/// Triangles of Slaney's mel scale (Auditory Toolbox 1998) up to half the rate, each of area 1 by
/// frequency: f32 [bins, window / 2 + 1].
Tensor mel_filters(const SpectrumSizes& sizes);

/// The real and imaginary parts of the discrete Fourier transform of a Hann window's samples as
/// matrices: f32 [2, window / 2 + 1, window].
Tensor spectrum_matrices(std::int64_t window);

/// f32 [bins, count / hop] of samples f32 [count], of which half a window is mirrored at both ends.
Tensor log_mel(const Tensor& samples, const Tensor& filters, const Tensor& spectra,
               const SpectrumSizes& sizes);

} // namespace egret::models::speech

// Sounds: WAV files, other sampling rates.
#pragma once

#include "egret/tensor.h"

#include <cstdint>
#include <filesystem>

namespace egret::io {

struct Sound {
  Tensor samples;        ///< f32 [channels, count], within -1 to 1
  std::int64_t rate = 0; ///< samples a second
};

/// A WAV file (RIFF or RF64, little-endian): integers of 8, 16, 24 or 32 bits, or floats of 32 or
/// 64. As with the other formats of io.h, files are taken to be hostile: Error(File) names file,
/// offset and reason, also for compressed kinds of samples and more than 64 channels.
Sound load_wav(const std::filesystem::path& path);

/// 16-bit integers; values beyond -1 to 1 are clamped. Error(Shape) unless samples are [channels,
/// count] of 1 to 64 channels, Error(Value) for a rate that is not positive.
void save_wav(const std::filesystem::path& path, const Sound& sound);

/// Samples [..., count] of one rate at another one, [..., ceil(count · to / from)], by a windowed
/// sinc (Smith 2002); work and memory are in proportion to the samples, whatever the rates.
/// Error(Value) for rates that are not positive, and where count · to does not fit 64 bits.
Tensor resampled(const Tensor& samples, std::int64_t from, std::int64_t to);

} // namespace egret::io

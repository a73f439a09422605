// TensorBoard's event files: records with checksums (TFRecord), each an Event in the wire format of
// protocol buffers. Only what scalars need is known here; other fields are passed over.
//
//   record   length u64, its masked CRC-32C u32, bytes, their masked CRC-32C u32; little-endian
//   Event    1: wall_time double, 2: step int64, 3: file_version string, 5: summary Summary
//   Summary  1: value Value, repeated
//   Value    1: tag string, 2: simple_value float
#pragma once

#include "egret/metrics.h"
#include "io/file.h"

#include <string>
#include <vector>

namespace egret::io {

/// The record that starts every file.
std::string version_record(double seconds);
/// A record with the scalars of one step.
std::string scalars_record(double seconds, std::int64_t step, const Measurements& values);

/// Throws Error(File).
std::vector<ScalarEvent> read_events(const InputFile& file);

} // namespace egret::io

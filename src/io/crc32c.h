// CRC-32C (Castagnoli; RFC 3720, appendix B.4), as records of event files carry it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace egret::io {

std::uint32_t crc32c(std::span<const std::byte> bytes) noexcept;

/// As TFRecord stores it: rotated and shifted, so that a checksum of data that holds checksums is
/// no trivial one.
std::uint32_t masked_crc32c(std::span<const std::byte> bytes) noexcept;

} // namespace egret::io

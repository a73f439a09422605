// Sizes of memory as people write them.
#pragma once

#include <cstdint>
#include <string_view>

namespace egret {

/// Bytes of "64MB", "1.5 GB", "4096", "512KiB": a number above 0 and B, K, M, G or T, with or
/// without B or iB behind it, in capitals or not; a K is 1024. Error(Value) that begins with `who`
/// for anything else, and for less than a byte or more than 2^62 of them.
std::int64_t parse_bytes(std::string_view text, std::string_view who);

/// `bytes` for an option of this name, "compile: memory_limit"; Error(Value) unless above 0.
std::int64_t checked_bytes(std::int64_t bytes, std::string_view who);

} // namespace egret

// Whole texts from files and pipes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace egret {

/// No program, graph or list of results is as large; and memory for so much is there.
inline constexpr std::uint64_t kMostText = std::uint64_t{1} << 28;

/// What a file holds. Throws Error(File) that begins with the path where it is a folder, cannot be
/// opened or read, or has more than `most` bytes; of a pipe or a device, which may never end, no
/// more than kMostText are read.
std::string read_text(const std::filesystem::path& path, std::uint64_t most = kMostText);

/// The same from a descriptor that is open already and stays open; `name` starts every message.
std::string read_text(int fd, const std::string& name, std::uint64_t most = kMostText);

} // namespace egret

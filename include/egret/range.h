// Names for what a program does, for traces, records and the tools of devices' makers.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

namespace egret {

/// While one lives, what its thread does belongs to a range of that name, within the ranges that
/// are open already: a Profile has it as a row of its own, a Record says of each operation in which
/// ranges it was recorded, so that `egret view` shows them as modules, and NVIDIA's tools show it
/// beside their devices' work (NVTX). Costs some tens of nanoseconds when nobody looks.
///
///   for (const Block& block : blocks) {
///     Range range("block");
///     x = block(x);
///   }
///
/// Of one thread they end in the opposite order of their beginnings.
class Range {
public:
  explicit Range(std::string_view name);
  ~Range();
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;

private:
  std::string name_;
  std::chrono::steady_clock::time_point begin_;
};

} // namespace egret

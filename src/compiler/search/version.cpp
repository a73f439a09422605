#include "compiler/search/tuner.h"

#include "generators_version.h"
#include "support/hash.h"

namespace egret::compiler {

namespace {

/// How candidates are checked and timed.
constexpr std::uint64_t kMeasuring = 1;

} // namespace

std::uint64_t tuning_version() noexcept {
  return combine(EGRET_GENERATORS_VERSION, kMeasuring);
}

} // namespace egret::compiler

// Which sanitizer the tests are compiled with.
#pragma once

#include "support/address_sanitizer.h"

namespace egret::test {

/// The address or the thread sanitizer: memory, and the time that instructions take, are those of
/// the tool too.
#if defined(EGRET_ADDRESS_SANITIZER) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

} // namespace egret::test

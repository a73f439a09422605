// Whether the address sanitizer watches this build: GCC and Clang say so in different ways.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define EGRET_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EGRET_ADDRESS_SANITIZER 1
#endif
#endif

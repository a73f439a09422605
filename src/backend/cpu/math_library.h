// Functions of this process that generated code may call: the barrier, and mathematics where no
// inline code is worth it. All take arrays, so that a vector of any width is one call.
#pragma once

#include <span>

namespace egret::backend::cpu {

struct LibraryFunction {
  const char* name;
  void* address;
};

/// All of them; generated code refers to them by name.
std::span<const LibraryFunction> math_library();

} // namespace egret::backend::cpu

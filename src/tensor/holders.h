// Which tensors hold memory, for errors.
#pragma once

#include "egret/error.h"

#include <utility>

namespace egret::detail {

/// Throws `error` again; with the largest values that tensors hold if it is Error(Memory). Needs
/// none of the mutexes of nodes and handles.
[[noreturn]] void rethrow_with_holders(const Error& error);

/// What `run` gives; its errors as rethrow_with_holders() throws them.
template <class F>
auto naming_holders(F&& run) {
  try {
    return std::forward<F>(run)();
  } catch (const Error& error) {
    rethrow_with_holders(error);
  }
}

} // namespace egret::detail

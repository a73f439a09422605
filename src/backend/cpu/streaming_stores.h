// Stores around the caches.
#pragma once

#include "kernel/program.h"

namespace egret::backend::cpu {

/// Whether some store asks to go around the caches.
inline bool has_streaming_store(const kernel::Block& stmts) {
  return any_statement(stmts, [](const kernel::Stmt& stmt) {
    const auto* store = get_if<kernel::Store>(stmt);
    return store && store->policy == kernel::CachePolicy::Streaming;
  });
}

} // namespace egret::backend::cpu

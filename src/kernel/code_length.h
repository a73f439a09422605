// How much straight code a program is, which is what compilers take their time for.
#pragma once

#include "kernel/program.h"

#include <cstddef>
#include <cstdint>

namespace egret::kernel {

/// Values that are computed, and what is stored of them, in all statements: on a GPU each lane
/// counts, as its code has a statement for each; on a CPU a vector is one.
inline std::int64_t code_length(const KernelProgram& program) {
  const bool by_lanes = program.launch.threads > 0;
  std::int64_t length = 0;
  const auto add = [&](ValueId value) {
    length += by_lanes ? program.values[static_cast<std::size_t>(value)].lanes : 1;
  };
  each_statement(program.body, [&](const Stmt& s) {
    if (const Let* let = get_if<Let>(s))
      add(let->target);
    else if (const Store* store = get_if<Store>(s))
      add(store->value);
    else
      ++length;
  });
  return length;
}

} // namespace egret::kernel

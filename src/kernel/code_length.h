// How much straight code a program is, which is what compilers take their time for.
#pragma once

#include "kernel/program.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace egret::kernel {

/// Values that are computed, those of functions by their operations, and what is stored of them, in
/// all statements: on a GPU each lane counts, as its code has a statement for each; on a CPU a
/// vector is one.
inline std::int64_t code_length(const KernelProgram& program) {
  const bool by_lanes = program.launch.threads > 0;
  std::int64_t length = 0;
  const auto add = [&](ValueId value, std::int64_t times = 1) {
    length += times * (by_lanes ? program.values[static_cast<std::size_t>(value)].lanes : 1);
  };
  const auto operations = [](const Inst& inst) {
    const auto* apply = get_if<inst::Apply>(inst);
    return apply ? static_cast<std::int64_t>(std::max(1.0, info_of(apply->op).flops)) : 1;
  };
  each_statement(program.body, [&](const Stmt& s) {
    if (const Let* let = get_if<Let>(s))
      add(let->target, operations(let->inst));
    else if (const Store* store = get_if<Store>(s))
      add(store->value);
    else
      ++length;
  });
  return length;
}

} // namespace egret::kernel

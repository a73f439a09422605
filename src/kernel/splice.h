// Programs written into another program, under numbers of their own.
#pragma once

#include "kernel/program.h"

#include <vector>

namespace egret::kernel {

/// Collects the code of several programs in one.
class Splice {
public:
  explicit Splice(std::string name) { program_.name = std::move(name); }

  KernelProgram& program() { return program_; }
  const KernelProgram& program() const { return program_; }
  /// A loop variable's number that no spliced program has.
  int fresh_loop() { return loops_++; }

  /// The body of `program` for a block of this program. `arguments` tells for each of its argument
  /// buffers, by argument number, which buffer of this program it is, `scalars` likewise; its other
  /// buffers, its values, variables and dims are added, but for those dims that are `sizes` of a
  /// group. It must have no tensor maps and no groups.
  Block add(const KernelProgram& program, const std::vector<int>& arguments,
            const std::vector<int>& scalars, const std::vector<Expr>& sizes = {});

private:
  KernelProgram program_;
  int loops_ = 0;
};

} // namespace egret::kernel

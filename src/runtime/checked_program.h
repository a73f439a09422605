// A program whose every run is compared with the reference.
#pragma once

#include "runtime/program.h"

#include <memory>

namespace egret::runtime {

/// `program` was compiled from `graph` for `device` with `options`. A run throws WrongResult where
/// an output differs from what the reference says by more than its tolerance; a state that the run
/// replaces in place then holds the wrong value.
std::shared_ptr<const Program> make_checked_program(std::shared_ptr<const Program> program,
                                                    const ir::Graph& graph,
                                                    const compiler::Options& options,
                                                    backend::Device& device);

} // namespace egret::runtime

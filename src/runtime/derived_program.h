// Programs with derived inputs (compiler/fold_parameters.h): values that are recomputed only when
// what they are made of has changed.
#pragma once

#include "compiler/fold_parameters.h"
#include "runtime/program.h"

#include <memory>

namespace egret::runtime {

/// Runs `main`, the program of derivation.main, with what `fill`, that of derivation.fill, gave; to
/// the outside it has the inputs of the graph before derivation. It remembers which storages in
/// which version `fill` ran on, without keeping them alive.
std::shared_ptr<const Program> make_derived_program(const compiler::ParameterFolding& derivation,
                                                    std::shared_ptr<const Program> main,
                                                    std::shared_ptr<const Program> fill);

} // namespace egret::runtime

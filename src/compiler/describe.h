// What a compilation becomes for the caller: the compiled plan and its report.
#pragma once

#include "compiler/compilation.h"
#include "compiler/compiled.h"

namespace egret::compiler {

/// The result of a compilation that all passes have run on. `report` holds what is known of the
/// program before its fusion plan was chosen; the rest is filled in.
Compiled compiled_of(Compilation compilation, CompileReport report = {});

} // namespace egret::compiler

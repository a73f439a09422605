// The record that is being written, if any (egret/record.h).
#pragma once

#include "compiler/record/record.h"
#include "runtime/program.h"

#include <functional>
#include <memory>

namespace egret::runtime {

/// `compile(options)` with its passes in the record that is being written; without one, just that.
std::shared_ptr<const Program>
recorded(const ir::Graph& graph, const compiler::Options& options, std::string_view device,
         const std::function<std::shared_ptr<const Program>(const compiler::Options&)>& compile);

/// Begins a record in the file that EGRET_RECORD names, if it is set, until the process ends.
/// Error(File) for a path that cannot be written to.
void record_as_environment_says();

} // namespace egret::runtime

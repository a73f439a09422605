// Runs a plan on host arrays, for tests: each launch through the interpreter, or on a device when
// one is given.
#pragma once

#include "backend/common/device.h"
#include "backend/reference/host_array.h"
#include "compiler/compile.h"

#include <span>
#include <vector>

namespace egret::testing {

/// The graph's outputs. `inputs` by slot; by-value inputs are arrays of rank 0. State inputs are
/// replaced in `inputs`.
std::vector<backend::reference::HostArray> run_plan(const compiler::Compiled& compiled,
                                                    const ir::Graph& graph,
                                                    std::span<backend::reference::HostArray> inputs,
                                                    backend::Device* device = nullptr);

} // namespace egret::testing

// The inputs of a run as arrays of the host.
#pragma once

#include "backend/reference/host_array.h"
#include "runtime/program.h"

#include <span>
#include <vector>

namespace egret::runtime {

/// By slot of the graph; waits for the devices that hold them.
std::vector<backend::reference::HostArray> host_arrays(const ir::Graph& graph,
                                                       std::span<const RunInput> inputs);

} // namespace egret::runtime

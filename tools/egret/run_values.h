// What `egret run` says and keeps of the values on the way to the outputs.
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/options.h"
#include "egret/ir.h"

#include <cstdint>
#include <string>
#include <vector>

namespace egret::tool {

struct ValueOptions {
  std::string folder;                ///< --save-values; empty: none are saved
  std::int64_t most_bytes = 1 << 30; ///< --values-limit
  bool find_nan = false;             ///< --find-nan
};

/// Runs the graph, read from `file`, launch by launch, and does what the options ask; the graph's
/// outputs. Throws CLI::RuntimeError(kFailed), with all said on stdout, where a NaN or infinity was
/// searched for and found.
std::vector<backend::reference::HostArray>
run_with_values(const std::string& file, const std::string& text,
                const std::vector<backend::reference::HostArray>& inputs, compiler::Options options,
                const ValueOptions& wishes);

} // namespace egret::tool

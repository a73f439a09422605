// One graph of each form that regions come in, at sizes just below, at and above what vectors,
// chunks and pieces divide.
#pragma once

#include "backend/reference/host_array.h"
#include "egret/ir.h"

#include <cstdint>
#include <functional>
#include <ostream>
#include <utility>
#include <vector>

namespace egret::testing {

struct FormCase {
  const char* name;
  std::function<void(ir::Graph&, std::int64_t, std::int64_t)> make;
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes;
};

inline void PrintTo(const FormCase& c, std::ostream* out) {
  *out << c.name;
}

const std::vector<FormCase>& region_forms();

/// Inputs of the graph; integers are indices, a few of them out of range.
std::vector<backend::reference::HostArray> inputs_of(const ir::Graph& g, std::uint64_t seed,
                                                     bool special);

} // namespace egret::testing

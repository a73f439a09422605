// A plan as a C library of its own: one function that runs all launches, with the kernels, the
// places of values in memory and the values that are known beforehand. It needs a C11 compiler and
// libm, and nothing of egret.
#pragma once

#include "egret/ir.h"
#include "kernel/plan.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::backend::c {

/// What the function is called and what it is given.
struct LibraryInterface {
  /// An input of the graph.
  struct Input {
    std::string name; ///< of the parameter, as users know it; made an identifier
    /// Its value, in the bytes of its dtype, if it is part of the library; else it is a parameter.
    std::optional<std::span<const std::byte>> value;
    std::size_t place = 0; ///< parameters stand by ascending places, then in the graph's order
  };
  /// A value that the function gives: an output of the graph, which may also be the new value of a
  /// state, an input as it was, or bytes.
  struct Result {
    enum class Kind : std::uint8_t { Output, Input, Value } kind = Kind::Output;
    std::string name;
    std::size_t number = 0; ///< of the graph's output or input
    DType dtype = DType::F32;
    Shape shape;
    std::span<const std::byte> value;
  };
  std::string name;          ///< of the function: a C identifier
  std::vector<Input> inputs; ///< by the graph's input
  std::vector<Result> results;
};

struct LibraryText {
  std::string source, header; ///< the source includes "NAME.h"
};

/// The plan's kernels are those of a C target. Inputs of `graph` are those of the plan. Results
/// have the same bits for any number of workers; with OpenMP (-fopenmp) they run in parallel.
/// Error(Value) when the name is no C identifier that may be used; Error(Unsupported) when C lacks
/// what a kernel needs.
LibraryText render_library(const kernel::Plan& plan, const ir::Graph& graph,
                           const LibraryInterface& interface);

} // namespace egret::backend::c

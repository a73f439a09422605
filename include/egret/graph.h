// The explicit interface: a graph that is built, compiled by composed passes, and executed.
#pragma once

#include "egret/passes.h"
#include "egret/tensor.h"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

namespace egret {

namespace detail {
struct GraphState;
}

/// The compiler pass that every graph may run: dead code, constants, identities
/// (passes::normalize).
struct Generic : Pass {
  Generic();
};
/// Asks the back end to put neighbouring operations into one kernel; without it each operation is a
/// kernel of its own. The graph itself does not change.
struct Fusion : Pass {
  Fusion();
};

/// Bounds the memory for intermediate values of a run, in bytes, as CompileOptions::memory_limit
/// does. Error(Value) for a number that is not above 0.
struct MemoryLimit : Pass {
  explicit MemoryLimit(std::int64_t bytes);
};

/// What execute_debug() saw of one operation.
struct OpTrace {
  std::string op;                  ///< "mul"
  std::vector<std::string> inputs; ///< "f32[2,3]", as the operation read them
  std::string shape;               ///< of the result, "f32[2,3]"
  std::string summary;             ///< "min -1 mean 0.25 max 3, 0 nan, 0 inf"
  double seconds = 0;
};

struct DebugReport {
  std::vector<OpTrace> ops; ///< slowest first
  double seconds = 0;       ///< of all
  std::string text() const; ///< a table for people
};

/// A graph of tensors that runs when told to:
///
///   Graph cx;
///   auto a = cx.tensor({3, 1}).set({1, 2, 3});
///   auto b = cx.tensor({1, 4}).set({1, 2, 3, 4});
///   auto c = matmul(a, b).retrieve();
///   cx.compile(Generic{} | Fusion{}, &c);
///   cx.execute();
///   c.data(); // 12 floats
///
/// All functions of tensors work on its tensors; tensors of two graphs do not mix (Error(State)),
/// and a plain tensor met on the way becomes a kept input. Only what was retrieved or kept survives
/// execute(): inputs are used up unless kept. Random numbers that are recorded on the way (a
/// dropout's mask) are drawn anew by every execute(), from the generator's counter, which moves on;
/// a tensor of random numbers that a handle holds keeps its value, as other plain tensors do.
class Graph {
public:
  Graph();
  ~Graph();
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;

  /// An input. It has a value after Tensor::set(). Its dims may be symbols (Expr::symbol): one
  /// compile() serves values of all sizes within their bounds.
  Tensor tensor(const Shape& shape, DType dtype = DType::F32, std::string name = {});

  /// Compiles what was marked by retrieve() or keep(), and `outputs`, by the passes in their order
  /// and then the back end. What each pass changed is in report(). Error(Memory) naming the least
  /// possible limit when a MemoryLimit cannot be met.
  template <class... Outputs>
  void compile(const Pass& compiler, Outputs*... outputs) {
    compile_marked(compiler, {outputs...});
  }

  /// Runs, compiling with Generic{} first when that was not done. Error(State) naming an input that
  /// has no value.
  void execute();
  /// Runs operation by operation, slowly, and tells of each.
  DebugReport execute_debug();

  std::string text() const;    ///< the graph as it now stands (docs/graph.md)
  std::string report() const;  ///< of the last compile()
  std::string explain() const; ///< kernels, and why neighbours did not fuse

private:
  void compile_marked(const Pass& passes, std::initializer_list<Tensor*> outputs);
  std::shared_ptr<detail::GraphState> state_;
};

} // namespace egret

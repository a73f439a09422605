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

/// Runs the graph on a device, "cuda:1", whichever the values of its inputs belong to: those that
/// are elsewhere are copied to it, and results belong to it. Error(Device) at compile() when it
/// cannot be had.
struct OnDevice : Pass {
  explicit OnDevice(const std::string& device);
};

struct DebugOptions {
  bool fused = false; ///< the kernels of compile(); else operation by operation
};

/// What execute_debug() saw of one operation or kernel.
struct OpTrace {
  std::string op;                  ///< "mul"; of a kernel its name
  std::vector<std::string> inputs; ///< "f32[2,3]", as the operation read them
  std::string shape;               ///< of the result, "f32[2,3]"; a kernel may have several
  std::string summary;             ///< "min -1 mean 0.25 max 3, 0 nan, 0 inf"
  double seconds = 0;              ///< the least of three runs, or of one that takes long
  double bytes = 0, flops = 0;     ///< of one run: read and written, at the largest sizes
};

/// Ceilings are 0 where there are none: for the reference and the interpreter.
struct DebugReport {
  std::vector<OpTrace> ops;                          ///< in the order in which they ran
  double seconds = 0;                                ///< of all
  double bytes_per_second = 0, flops_per_second = 0; ///< the device's ceilings, as measured
  /// The share of the ceiling, of memory or arithmetic, whichever is the limit.
  double of_ceiling(const OpTrace& op) const;
  DebugReport slowest_first() const;
  std::string text() const; ///< a table for people
};

/// Where two runs that save_values() or `egret run --save-values` wrote differ first.
struct ValueDifference {
  std::size_t compared = 0, differing = 0; ///< values
  std::string node; ///< the first that differs, "%4: f32[12] = sum(%3) axes=[1]"
  /// "kernel"; "rules" or "pass" of the compiler; "graph": other graphs were given; "inputs";
  /// "rounding"; "unknown" where values that are needed have summaries only; "none" where no value
  /// differs.
  std::string culprit;
  std::vector<std::string> names; ///< the kernel and its schedule; the rules; the passes
  std::string text;               ///< all of it, for people
};

/// Compares runs of the same graph, on other devices, with other passes or in other dtypes.
/// `tolerance` multiplies those of the dtypes (docs/seeing.md). Error(File) for a folder that holds
/// no run, or a damaged one.
ValueDifference diff_values(const std::string& first, const std::string& second,
                            double tolerance = 1);

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
  /// Runs operation by operation, or kernel by kernel, slowly, and tells of each.
  DebugReport execute_debug(const DebugOptions& options = {});

  /// Runs as execute() does, launch by launch, and writes the inputs and what each kernel stores to
  /// a folder, for diff_values() and `egret diff` (docs/seeing.md); the number of values. Of more
  /// than `most_bytes` of elements there are only summaries. A folder that holds this run already,
  /// whole or cut short, is completed; Error(State) for one that holds another run, Error(File) for
  /// one that cannot be written to.
  std::size_t save_values(const std::string& folder, std::int64_t most_bytes = 1 << 30);

  std::string text() const;    ///< the graph as it now stands (docs/graph.md)
  std::string report() const;  ///< of the last compile()
  std::string explain() const; ///< kernels, and why neighbours did not fuse

  // The loop form of what was compiled; empty before.
  /// The schedule of each kernel, a line each: `map_mul = loops @tree=for(...)`
  /// (CompileOptions::schedules, docs/loops.md).
  std::string schedules() const;
  std::string loops() const; ///< the loop nests that the schedules give
  /// The kernels' schedule trees as terms with the rules that change them, for tensor_egraph().
  std::string loop_program() const;

private:
  void compile_marked(const Pass& passes, std::initializer_list<Tensor*> outputs);
  std::shared_ptr<detail::GraphState> state_;
};

} // namespace egret

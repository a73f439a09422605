// Sweeps: random programs of a kind, each verified, timed and compared with what the machine can do
// at most. A draw is a set of parameters, a pure function of (kind, seed, index, limits); the
// program is made of the parameters alone, so that bench/peers/sweep.py makes the same one in
// PyTorch.
#pragma once

#include "bench.h"
#include "sweep/dice.h"

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace egret::tool::sweep {

using Json = nlohmann::ordered_json;
using Tensors = std::vector<Tensor>;

/// What a draw may take at most.
struct Limits {
  double bytes = 0; ///< of all inputs and outputs together, each once
  double flops = 0; ///< of products
};
/// Those of so many MiB: 128 million operations for each.
Limits limits_of(double mb);
/// Sized for the device in use: 32 for a CPU, four times the cache of a GPU.
double default_mb();

/// Inputs and outputs that belong together line by line: line i of the outputs needs line i of
/// these inputs, and the whole of all others.
struct Lines {
  std::vector<int> inputs;  ///< an axis for each input; -1: needed whole
  std::vector<int> outputs; ///< an axis for each output
};

/// Error(Value): parameters that no draw gives.
[[noreturn]] void fail_unknown(const std::string& name);

/// What the parameters stand for.
struct Program {
  std::function<Tensors(const Tensors&)> run; ///< of the inputs as their views show them
  double bytes = 0;                           ///< moved at least; 0: inputs and outputs once each
  double flops = 0;                           ///< of products, or of the elements' operations
  DType products = DType::F32;                ///< the dtype whose peak bounds them
  int steps = 1; ///< that follow each other, each moving bytes / steps and computing flops / steps
  bool elements = false;    ///< flops are those of the graph's operations, by the op table
  std::vector<Lines> lines; ///< ways of taking some lines only, when all are too many to verify
};

struct Kind {
  std::string name, what;
  Json (*draw)(Dice&, const Limits&);
  Program (*program)(const Json& parameters);
};
const std::vector<Kind>& kinds();
/// Error(Value) listing the kinds for a name that none has.
const Kind& kind_named(std::string_view name);

/// The parameters of draw `index`.
Json draw(const Kind& kind, std::uint64_t seed, std::uint64_t index, const Limits& limits);

// --- inputs: {"shape", "dtype"} and optionally a view {"base", "begin", "step", "permute"} of a
// larger array (base[begin::step ...] permuted), and "below" with "spread" for integers
struct Layouts {
  double permuted = 0.2, sliced = 0.2; ///< probabilities
};
Json input(const std::vector<std::int64_t>& shape, DType dtype);
/// The same, now and then as a view.
Json input(Dice& dice, const std::vector<std::int64_t>& shape, DType dtype,
           const Layouts& layouts = {});
/// Indices: uniform, ascending, a few places for most, or one place for all.
Json indices(Dice& dice, const std::vector<std::int64_t>& shape, std::int64_t below);
std::vector<std::int64_t> sizes_of(const Json& list);
std::int64_t product(const std::vector<std::int64_t>& sizes);
DType dtype_of(const Json& input);
double bytes_of(const Json& inputs); ///< of what the views show
/// The arrays behind the views, in memory of the device in use; other values for each number.
Tensors make_inputs(const Json& inputs, std::uint64_t number);
/// What a view shows of the array behind it.
Tensor view(const Tensor& base, const Json& input);

/// Some positions along axes of an array on the host: [axis, positions].
using Chosen = std::vector<std::pair<int, std::vector<std::int64_t>>>;
/// What a view shows of an array, at the chosen positions of the view's axes.
Tensor shown(const Tensor& base, const Json& input, const Chosen& chosen);

// --- kinds, by file
Json draw_elementwise(Dice&, const Limits&);
Program elementwise(const Json&);
Json draw_transpose(Dice&, const Limits&);
Program transposed(const Json&);
Json draw_rows(Dice&, const Limits&);
Json draw_columns(Dice&, const Limits&);
Program reduction(const Json&);
Json draw_scan(Dice&, const Limits&);
Program scan(const Json&);
Json draw_window(Dice&, const Limits&);
Program window(const Json&);
Json draw_gather(Dice&, const Limits&);
Program gathered(const Json&);
Json draw_scatter(Dice&, const Limits&);
Program scattered(const Json&);
Json draw_sort(Dice&, const Limits&);
Json draw_topk(Dice&, const Limits&);
Program ordered(const Json&);
Json draw_small(Dice&, const Limits&);
Program small(const Json&);
Json draw_recurrent(Dice&, const Limits&);
Program recurrent(const Json&);
Json draw_contraction(Dice&, const Limits&);
Program contraction(const Json&);
Json draw_batched(Dice&, const Limits&);
Program batched(const Json&);
Json draw_quantized(Dice&, const Limits&);
Program quantized(const Json&);
Json draw_convolution(Dice&, const Limits&);
Program convolution(const Json&);
Json draw_attention(Dice&, const Limits&);
Json draw_decode(Dice&, const Limits&);
Program attention(const Json&);

// --- one draw, and many
struct Options {
  std::string kind; ///< or "all"
  std::uint64_t count = 20, seed = 0;
  std::optional<std::uint64_t> only; ///< this index alone
  double mb = 0;                     ///< 0: sized for the device
  double timeout = 120;              ///< seconds a draw
  bool json = false, draws = false;  ///< draws: print the parameters, run nothing
  bench::MeasureOptions measure;
};

/// {"kind", "seed", "index", "mb", "params"}
Json drawn_line(const Kind& kind, const Options& options, double mb, std::uint64_t index);
/// Runs, verifies and times a draw on the device in use; adds what came out to its line. Errors are
/// the caller's.
void measure(const Kind& kind, Json& line, const Options& options);

/// Compares outputs of a run with the reference: of all, or of the most lines that it can do in
/// seconds.
struct Verification {
  bool ok = false;
  std::string how, message; ///< what was compared; the first difference
  double worst = 0;         ///< largest difference, in tolerances
};
Verification verify(const Program& program, const Json& inputs, const Tensors& bases,
                    const Tensors& outputs);
/// Operations of the whole program, by the op table.
double operations(const Program& program, const Tensors& inputs);

/// Prints a line or a row for each draw and a summary for each kind; `prepare` is called in each
/// process that computes. True when all draws were right.
bool run(const Options& options, const std::function<void()>& prepare);
/// Of lines of one kind: {"kind", "count", "failed", "geometric_mean", "median", "worst",
/// "below_quarter", "worst_draws"}.
Json summary(const std::vector<Json>& lines);

} // namespace egret::tool::sweep

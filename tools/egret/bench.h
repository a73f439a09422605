// Workloads that speed is judged on, and how one is measured.
#pragma once

#include "egret/compile.h"
#include "egret/effort.h"
#include "egret/tensor.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace egret::tool::bench {

/// What a check against the reference found.
struct Check {
  bool ok = false;
  double max_error = 0; ///< largest difference from the reference, over the reference's largest
                        ///< value among those compared
  void include(const Check& other);
};

/// What a workload is divided by: a figure of this machine, measured in the same run with egret's
/// own kernels.
enum class Limit { None, PeakFma, Copy, Read };

/// The rate that limits a workload on the device in use: f32 operations a second (of a CPU), or
/// bytes a second of a copy or read of as many bytes. Measured when first asked for and then
/// remembered; 0 for None and for what is not known of the device.
double ceiling(Limit limit, double bytes);

/// One product of matrices: what cuBLAS is asked for beside a workload that is made of it.
struct Product {
  std::int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::F32; ///< of all three; sums are in f32
  bool turned = false;      ///< the right factor is [n, k]
};

/// A workload that is ready to run. Everything it needs stands in memory.
struct Case {
  std::function<std::vector<Tensor>()> run; ///< once; returns what it computed
  double flops = 0, bytes = 0; ///< of one run: arithmetic that the definition asks for; inputs and
                               ///< outputs once each
  double tokens = 0;           ///< of one run; 0: it has none
  std::optional<Product> product = std::nullopt; ///< cuBLAS's share of it
  /// Compares what a run returned (or left in its state) with the reference.
  std::function<Check(const std::vector<Tensor>& outputs)> check;
};

/// The machine that a workload is judged on. It runs on any other with the memory for it.
enum class Judged { Cpu, Cuda, Both };

struct Workload {
  std::string name, what, dtype;
  Limit limit = Limit::None;
  std::function<Case()> make; ///< empty for the ceilings themselves
  double ceiling_bytes = 0;   ///< of a ceiling
  Judged judged = Judged::Cpu;
  double memory = 0; ///< bytes of the device that a run takes, roughly; 0: few
  /// The same program at sizes that a test can do: its graph, as text. May be empty when another
  /// workload's is the same.
  std::function<std::string()> small = {};
};

/// The graph that a function becomes when it is called with these arguments, as text.
template <class F, class... A>
std::string traced(F function, A&&... arguments) {
  auto compiled = compile(std::move(function));
  compiled(arguments...);
  return compiled.graph_text();
}

/// All of them, in the order of the list. Names are unique.
const std::vector<Workload>& workloads();

// --- parts of the list, each in a file of its own
std::vector<Workload> ceiling_workloads();
std::vector<Workload> elementwise_workloads();
std::vector<Workload> matmul_workloads();
std::vector<Workload> attention_workloads(); ///< and their gradients
std::vector<Workload> training_workloads();
std::vector<Workload> llama_workloads();
std::vector<Workload> scan_workloads();
std::vector<Workload> order_workloads();   ///< sorts, selections, counts and scatters
std::vector<Workload> loss_workloads();    ///< and gradients of norms
std::vector<Workload> compile_workloads(); ///< that take longer to compile than to run
std::vector<Workload> windows_workloads(); ///< convolutions and pooling
std::vector<Workload> convolution_gradient_workloads();
std::vector<Workload> record_workloads(); ///< launches that are recorded, and that are not

/// Inputs of a sample and, for each element of what the workload's function makes of them, the
/// place of the same element in the full output.
struct Sample {
  std::vector<Tensor> inputs;
  std::vector<std::int64_t> elements;
};

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// Inputs of a run; other ones for each number.
using MakeInputs = std::function<std::vector<Tensor>(std::uint64_t set)>;

/// A case whose run is one compiled function of inputs, checked by the reference on a sample of
/// them. On a GPU as many sets of inputs alternate as it takes to go beyond its cache.
Case pure_case(const std::string& name, const Function& function, const MakeInputs& make,
               std::function<Sample(const std::vector<Tensor>&)> sample, double tolerance);

/// How many sets of inputs of so many bytes alternate on the device in use.
std::size_t sets_of(double bytes);

/// Runs `make` with the reference executor in place of the compiler.
std::vector<double> by_reference(const std::function<Tensor()>& make);
std::vector<double> values_by_reference(const std::function<std::vector<double>()>& make);
/// Differences of values at the same indices.
Check compare(const std::vector<double>& actual, const std::vector<double>& expected,
              double tolerance);

/// Standard normal numbers in memory, the same for the same seed.
Tensor random_tensor(const std::vector<std::int64_t>& shape, std::uint64_t seed,
                     DType dtype = DType::F32, double deviation = 1);
/// Some rows of a matrix, copied.
Tensor some_rows(const Tensor& matrix, const std::vector<std::int64_t>& rows);
/// First, last and a few rows between.
std::vector<std::int64_t> sample_rows(std::int64_t rows, std::int64_t count);

struct Measurement {
  std::string name, device, dtype;
  double ms_median = 0, ms_min = 0;
  std::int64_t reps = 0;
  double flops = 0, bytes = 0;
  std::uint64_t kernels = 0, phases = 0, peak_bytes = 0;
  double search_seconds = 0, compile_seconds = 0;
  std::uint64_t candidates = 0;
  bool is_ceiling = false; ///< a rate of the machine: there is nothing to verify
  bool verified = false;
  double max_error = 0;
  bool cache_hit = false;
  double against_ms = 0, ratio = 0; ///< of rounds in turn with another effort: its median, and the
                                    ///< quotient of the medians; 0: none
  double ratio_low = 0, ratio_high = 0; ///< quartiles of the rounds' quotients
  std::uint64_t rounds = 0;
  double ceiling = 0,
         of_ceiling = 0; ///< of the workload's limit, and the share of it that was reached; 0: none
  double tokens_per_second = 0;
  double cublas_ms = 0, of_cublas = 0; ///< its product by cuBLAS, and that over ms_median; 0: none
  std::string json() const;            ///< one line
};

struct MeasureOptions {
  double seconds = 1;            ///< of timed runs, at least
  int reps = 20;                 ///< at least
  std::optional<Effort> against; ///< run in turn with this effort too
  std::string trace = {};        ///< folder for a trace of one run of each; empty: none
};

/// What a case takes and whether it is right: all but names and ceilings.
Measurement measure_case(const Case& c, const MeasureOptions& options);
/// Throws Error(Memory) when the device in use is too small for the workload.
Measurement measure(const Workload& workload, const MeasureOptions& options);

/// Calls `run` with nothing searched meanwhile: inputs, ceilings and what results are compared with
/// are not what a search's time is for.
void unsearched(const std::function<void()>& run);

/// Runs once, with a trace of it in FOLDER/NAME.json. Throws Error(File) for what cannot be
/// written.
void trace_run(const std::function<void()>& run, const std::string& folder,
               const std::string& name);

/// Seconds of one run, sorted, and how many runs they were taken from.
struct Times {
  std::vector<double> seconds;
  std::int64_t runs = 0;
  double median() const { return seconds[seconds.size() / 2]; }
};
/// On a CPU each run is waited for. On a GPU rounds of `reps` runs or more are queued behind a
/// stream that is kept busy meanwhile, and timed by the device: what is measured is the device's
/// work.
Times time_runs(const std::function<void()>& run, const MeasureOptions& options);

/// Seconds that cuBLAS takes for a product of random matrices on the GPU in use, timed as
/// time_runs() does; 0 where there is no GPU or no cuBLAS.
double cublas_seconds(const Product& product, const MeasureOptions& options);

} // namespace egret::tool::bench

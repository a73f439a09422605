// The workloads as programs of a GPU, at small sizes and without one: their kernels are
// interpreted and compared with the reference, and their text compiles for the GPUs there are.
#include "backend/cuda/nvrtc.h"
#include "backend/cuda/render.h"
#include "backend/reference/reference.h"
#include "bench.h"
#include "compiler/compile.h"
#include "compiler/placed_products.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/graph.h"
#include "kernel/stream_form.h"
#include "runtime/runtime.h"
#include "support/null_device.h"
#include "support/nvrtc.h"
#include "support/plan_runner.h"
#include "support/random_graph.h"
#include "support/recorded_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <thread>

namespace egret {
namespace {

using tool::bench::traced;
using tool::bench::Workload;

struct Program {
  std::string name;
  ir::Graph graph;
};

/// What `make` gives while the reference runs what is traced: the graph is the same, and no machine
/// code is made for its text.
template <class F>
auto on_the_reference(F make) {
  struct Guard {
    runtime::Runtime& runtime = runtime::Runtime::instance();
    runtime::Engine before = runtime.engine();
    Guard() { runtime.use(runtime::Engine::Reference); }
    ~Guard() { runtime.use(before); }
  } guard;
  return make();
}

/// Of all workloads, each once: many differ in their sizes only.
const std::vector<Program>& programs() {
  static const std::vector<Program> list = [] {
    std::map<std::string, std::string> names; // by graph
    for (const Workload& workload : tool::bench::workloads())
      if (workload.small)
        names.emplace(on_the_reference(workload.small), workload.name);
    std::vector<Program> all;
    for (const auto& [text, name] : names)
      all.push_back({name, ir::parse_graph(text)});
    return all;
  }();
  return list;
}

compiler::Compiled compiled_for(const ir::Graph& graph, const kernel::Target& target) {
  testing::NullDevice device(target);
  compiler::KernelCache cache;
  return compiler::compile_graph(graph, {}, device, cache);
}

/// A small GPU with a small cache, so that small programs are cut up and joined as large ones are.
kernel::Target small_gpu() {
  kernel::Target target = testing::test_gpu();
  target.l2_bytes = 4 << 10;
  return target;
}

/// Whether zeros beside windows take the place of products that are not made: those of infinities
/// are NaN (docs/compiler.md).
bool multiplies_zeros(const ir::Graph& graph) {
  return ir::print(compiler::with_placed_products(graph, small_gpu())) != ir::print(graph);
}

/// Whether a kernel skips tiles that are masked, of which it does not look at the values: the
/// formula multiplies them by 0 (docs/streaming-contractions.md).
bool skips_masked_tiles(const compiler::Compiled& compiled) {
  return std::any_of(
      compiled.plan.kernels.begin(), compiled.plan.kernels.end(), [](const auto& kernel) {
        const auto found = kernel::find_stream(kernel.region, kernel::StreamTakes::Vectors);
        return kernel.schedule.generator == "gpu_stream" && found.ok && !found.form.bounds.empty();
      });
}

/// Every so many of the programs, from a first one on.
constexpr int kParts = 8;
class WorkloadsOnAGpu : public ::testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Parts, WorkloadsOnAGpu, ::testing::Range(0, kParts));

TEST_P(WorkloadsOnAGpu, InterpretedKernelsAgreeWithTheReference) {
  ASSERT_GE(programs().size(), 20u);
  for (auto p = static_cast<std::size_t>(GetParam()); p < programs().size(); p += kParts) {
    const Program& program = programs()[p];
    const auto compiled = compiled_for(program.graph, small_gpu());
    const bool special = !multiplies_zeros(program.graph) && !skips_masked_tiles(compiled);
    auto inputs = testing::random_inputs(program.graph, 5, {.special = special, .range = 1});
    const auto expected = backend::reference::expect(program.graph, inputs);
    const auto actual = testing::run_plan(compiled, program.graph, inputs);
    ASSERT_EQ(actual.size(), expected.size()) << program.name;
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result =
          backend::reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      EXPECT_TRUE(result.ok) << program.name << ": " << result.message;
      if (!result.ok)
        break;
    }
  }
}

// Long rows are read once for their loss, whose one element is read at its place when the row's
// gradient has been stored: not where the logits were.
TEST(WorkloadsOnGpus, AGradientDoesNotTakeThePlaceOfLogitsThatTheLossReads) {
  const Tensor x = tool::bench::random_tensor({6, 16}, 1),
               w = tool::bench::random_tensor({16, 20000}, 2),
               labels = (arange(6) * 3331 + 7).eval(), rows = (5 - arange(6)).eval();
  const auto step = [](const std::vector<Tensor>& in) {
    const Tensor logits = matmul(in[0], in[1]), hit = one_hot(in[2], logits.size(-1));
    Tensor log_p = logits - logits.max(-1, true);
    log_p = log_p - log(exp(log_p).sum(-1, true));
    // A table is in memory.
    return std::vector<Tensor>{(log_p * hit).sum(-1), embedding(exp(log_p) - hit, in[3])};
  };
  const ir::Graph graph = ir::parse_graph(on_the_reference([&] {
    return traced(step, std::vector<Tensor>{x, w, labels, rows});
  }));
  auto inputs = testing::random_inputs(graph, 5, {.special = false, .range = 1});
  ASSERT_EQ(inputs.size(), 4u);
  inputs[2] = {labels.dtype(), {6}, labels.to_vector<double>()};
  inputs[3] = {rows.dtype(), {6}, rows.to_vector<double>()};
  const auto expected = backend::reference::expect(graph, inputs);
  const auto compiled = compiled_for(graph, backend::cuda::known_target(90));
  EXPECT_TRUE(
      std::any_of(compiled.report.kernels.begin(), compiled.report.kernels.end(),
                  [](const auto& k) { return k.schedule.find("online=1") != std::string::npos; }));
  const auto actual = testing::run_plan(compiled, graph, inputs);
  for (std::size_t o = 0; o < actual.size(); ++o) {
    const auto result =
        backend::reference::compare(actual[o], expected[o], fmt::format("output {}", o));
    EXPECT_TRUE(result.ok) << result.message;
  }
}

struct Text {
  std::string name, text, architecture;
};

/// The different kernels of all programs as the compiler chooses them for a GPU.
void add_texts(std::vector<Text>& texts, const kernel::Target& target,
               const backend::cuda::Nvrtc& compiler) {
  const auto cuda = backend::cuda::cuda_target(target);
  std::map<std::uint64_t, bool> seen;
  for (const Program& program : programs())
    for (const kernel::KernelEntry& entry : compiled_for(program.graph, target).plan.kernels)
      if (seen.try_emplace(hash_of(entry.program)).second)
        texts.push_back({program.name + " " + to_string(entry.schedule),
                         backend::cuda::render_cuda(entry.program, cuda),
                         compiler.architecture_for(cuda.capability, cuda.specific)});
}

// Registers that nvcc cannot hold at the edges of a loop; more would show in a kernel's time.
constexpr std::int64_t kFewBytes = 32;

TEST(WorkloadsOnGpus, TextCompilesAndSpillsNextToNothing) {
  const auto compiler = testing::nvrtc();
  if (!compiler)
    GTEST_SKIP() << "NVRTC is not installed";
  std::vector<Text> texts;
  for (const int capability : {80, 90, compiler->architectures().back()})
    add_texts(texts, backend::cuda::known_target(capability), *compiler);
  std::vector<std::string> problems(texts.size());
  std::atomic<std::size_t> next{0};
  std::atomic<int> registers{0}, shared{0};
  auto work = [&] {
    for (std::size_t i; (i = next++) < texts.size();)
      try {
        for (const auto& k : compiler->compile(texts[i].text, texts[i].architecture).kernels) {
          if (k.spill_stores > kFewBytes)
            problems[i] = fmt::format("{} bytes are spilled", k.spill_stores);
          registers = std::max<int>(registers, k.registers);
          shared = std::max<int>(shared, static_cast<int>(k.shared_bytes));
        }
      } catch (const Error& error) {
        problems[i] = error.what();
      }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
      threads.emplace_back(work);
  }
  for (std::size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(problems[i], "") << texts[i].name << " " << texts[i].architecture;
  RecordProperty("kernels", static_cast<int>(texts.size()));
  RecordProperty("most registers", registers);
  RecordProperty("most static shared bytes", shared);
}

struct Size {
  std::size_t launches, phases;
};

/// What a function of matrices becomes on an H200.
template <class F>
Size size_of_program(F function, std::vector<Tensor> inputs) {
  const std::string text = on_the_reference([&] { return traced(function, inputs); });
  const auto compiled = compiled_for(ir::parse_graph(text), backend::cuda::known_target(90));
  Size size{compiled.plan.steps.size(), 0};
  for (const auto& kernel : compiled.report.kernels)
    size.phases += static_cast<std::size_t>(kernel.phases);
  return size;
}

using In = const std::vector<Tensor>&;

TEST(WorkloadsOnGpus, WhatIsToBeOneKernelIsOne) {
  using tool::bench::random_tensor;
  const Tensor x = random_tensor({64, 1024}, 1), w = random_tensor({1024, 256}, 2),
               b = random_tensor({256}, 3), scale = random_tensor({1024}, 4);
  const Tensor targets = (arange(64) * 7).eval();
  auto is_one = [](const char* what, Size size) {
    EXPECT_EQ(size.launches, 1u) << what;
    return size.phases;
  };
  EXPECT_EQ(is_one("exp(cos)", size_of_program([](In in) { return exp(cos(in[0])); }, {x})), 1u);
  EXPECT_EQ(
      is_one("relu(a@b+bias)",
             size_of_program([](In in) { return relu(matmul(in[0], in[1]) + in[2]); }, {x, w, b})),
      1u);
  is_one("softmax", size_of_program([](In in) { return softmax(in[0], -1); }, {x}));
  is_one("layer norm",
         size_of_program([](In in) { return layer_norm(in[0], in[1], in[1]); }, {x, scale}));
  is_one("cross-entropy of rows",
         size_of_program(
             [](In in) { return cross_entropy(in[0], in[1], {.reduction = Reduction::None}); },
             {x, targets}));
}

/// A program that stores nothing between its inputs and outputs but what is small beside them.
struct Fused {
  const char* what;
  std::vector<std::pair<Shape, DType>> inputs;
  std::function<std::vector<Tensor>(In)> function;
  std::size_t launches; ///< at the most
  double stored = 0;    ///< bytes at the most, beside outputs
  bool gradients =
      false; ///< of the sum of the first output, by all inputs of floats, are outputs too
  std::vector<Shape> smaller = {}; ///< of which the kernels' values are compared; empty: the same
};

constexpr DType kF32 = DType::F32, kBF16 = DType::BF16, kI64 = DType::I64, kU64 = DType::U64;

/// A generator whose state are inputs of the program.
Generator generator_of(const Tensor& key, const Tensor& counter) {
  Generator generator;
  generator.key = key;
  generator.counter = counter;
  return generator;
}

const std::vector<Fused>& fused_programs() {
  static const std::vector<Fused> list{
      {"softmax over a middle axis",
       {{{8, 128, 64}, kF32}},
       [](In in) { return std::vector{softmax(in[0], 1)}; },
       1},
      {"softmax over the first axis",
       {{{96, 256}, kF32}},
       [](In in) { return std::vector{softmax(in[0], 0)}; },
       1},
      {"columns to mean 0 and deviation 1",
       {{{128, 64}, kF32}},
       [](In in) { return std::vector{(in[0] - in[0].mean(0)) / (stddev(in[0], 0) + 1e-5)}; },
       1},
      {"dropout and residual",
       {{{64, 256}, kF32}, {{}, kU64}, {{}, kU64}},
       [](In in) {
         Generator generator = generator_of(in[1], in[2]);
         return std::vector{dropout(in[0], 0.1, generator) + in[0]};
       },
       1},
      {"Gumbel sampling",
       {{{16, 500}, kF32}, {{}, kU64}, {{}, kU64}},
       [](In in) {
         Generator generator = generator_of(in[1], in[2]);
         return std::vector{argmax(in[0] + gumbel({16, 500}, generator), -1)};
       },
       1},
      {"product with one-hot rows",
       {{{256}, kI64}, {{100, 64}, kF32}},
       [](In in) { return std::vector{matmul(one_hot(in[0], 100), in[1])}; },
       1},
      {"Huber loss",
       {{{20000}, kF32}, {{20000}, kF32}},
       [](In in) { return std::vector{huber_loss(in[0], in[1])}; },
       1},
      {"focal loss",
       {{{256, 80}, kF32}, {{256, 80}, kF32}},
       [](In in) {
         const Tensor p = sigmoid(in[0]), hit = p * in[1] + (1 - p) * (1 - in[1]);
         const Tensor loss = binary_cross_entropy_with_logits(in[0], in[1], Reduction::None);
         return std::vector{(loss * square(1 - hit)).mean()};
       },
       1},
      {"a gated unit's gradient",
       {{{128, 256}, kF32}},
       [](In in) { return std::vector{glu(in[0], -1)}; },
       2,
       0,
       true},
      // Stored are the pre-activation, the activation, its gradient and the product's; not the
      // tanh.
      {"GELU between products, and its gradients",
       {{{256, 512}, kBF16}, {{1024, 512}, kBF16}, {{512, 1024}, kBF16}},
       [](In in) {
         const Tensor x = matmul(in[0], in[1].transpose());
         const Tensor y = x * 0.5 * (tanh((x + x * x * x * 0.044715) * 0.7978845608) + 1);
         return std::vector{square(matmul(y, in[2].transpose()))};
       },
       8,
       3 * 524288 + 262144,
       true,
       {{64, 128}, {128, 128}, {128, 128}}},
      {"total variation's gradient",
       {{{2, 3, 40, 40}, kF32}},
       [](In in) {
         return std::vector{abs(diff(in[0], 1, 2)).mean() + abs(diff(in[0], 1, 3)).mean()};
       },
       3,
       16,
       true},
  };
  return list;
}

ir::Graph graph_of(const Fused& program, bool smaller) {
  Graph graph;
  std::vector<Tensor> inputs;
  for (const auto& [shape, dtype] : program.inputs) {
    const bool other = smaller && !program.smaller.empty();
    inputs.push_back(graph.tensor(other ? program.smaller.at(inputs.size()) : shape, dtype));
    if (program.gradients && is_float(dtype))
      inputs.back().set_requires_grad();
  }
  std::vector<Tensor> outputs = program.function(inputs);
  if (program.gradients)
    for (const Tensor& gradient : grad(std::vector{sum(outputs[0])}, inputs))
      outputs.push_back(gradient);
  return testing::recorded_graph(graph, outputs);
}

/// Bytes that kernels write beside the program's outputs.
double stored_by(const compiler::Compiled& compiled) {
  double bytes = 0;
  for (const auto& kernel : compiled.report.kernels)
    bytes += double(kernel.bytes_written);
  const ir::Graph& graph = compiled.report.graph;
  for (const ir::NodeId id : graph.outputs) {
    double elements = 1;
    for (const Expr& extent : graph[id].shape)
      elements *= double(extent.value());
    bytes -= elements * double(size_of(graph[id].dtype));
  }
  return bytes;
}

TEST(WorkloadsOnGpus, WhatReadersRecomputeIsNotStored) {
  for (const Fused& program : fused_programs()) {
    const auto compiled = compiled_for(graph_of(program, false), backend::cuda::known_target(90));
    EXPECT_LE(compiled.plan.steps.size(), program.launches) << program.what;
    EXPECT_LE(stored_by(compiled), program.stored) << program.what;
  }
}

TEST(WorkloadsOnGpus, WhatReadersRecomputeAgreesWithTheReference) {
  for (const Fused& program : fused_programs()) {
    const ir::Graph graph = graph_of(program, true);
    auto inputs = testing::random_inputs(graph, 7, {.special = false, .range = 1});
    const auto expected = backend::reference::expect(graph, inputs);
    const auto compiled = compiled_for(graph, backend::cuda::known_target(90));
    EXPECT_LE(compiled.plan.steps.size(), program.launches) << program.what;
    const auto actual = testing::run_plan(compiled, graph, inputs);
    ASSERT_EQ(actual.size(), expected.size()) << program.what;
    for (std::size_t o = 0; o < actual.size(); ++o) {
      const auto result =
          backend::reference::compare(actual[o], expected[o], fmt::format("output {}", o));
      EXPECT_TRUE(result.ok) << program.what << ": " << result.message;
    }
  }
}

} // namespace
} // namespace egret

// Functions that were compiled for CUDA as C libraries, on a driver whose kernels are interpreted:
// values, launches as those of a run, and what is said where something is missing.
#include "support/exported_library.h"
#include "support/interpreted_gpu.h"
#include "support/run_tool.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/ir.h"
#include "egret/models.h"
#include "egret/random.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

namespace egret {
namespace {

using test::expect_close;
using test::expect_contains;
using test::Mlp;
using test::mlp;

/// The codes of a library's header.
enum Code : std::uint8_t { kOk, kBadSize, kNoMemory, kNoDevice, kFailed, kBusy };

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  return softmax(matmul(q, k.transpose()), -1).matmul(v);
}

class CudaExport : public test::ExportedLibraries {
protected:
  const char* message(const std::string& name) {
    return reinterpret_cast<const char* (*)()>(libraries_.back()->function(name + "_message"))();
  }
  template <class F>
  F* other(const std::string& name) {
    return reinterpret_cast<F*>(libraries_.back()->function(name));
  }

  Generator generator_{1};
};

TEST_F(CudaExport, AnMlpGivesItsValues) {
  const Mlp model = mlp(generator_);
  const Tensor x = randn({5, 20}, generator_);
  auto forward = compile([&](const Tensor& input) { return softmax(model(input), -1); });
  const Tensor want = forward(x);
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  forward(x);
  forward.export_library(path("mlp.so"));
  gpu.interpret(ir::parse_graph(forward.graph_text()));
  auto* const f = function<int(const float*, float*, void*, std::size_t)>("mlp");
  const std::vector<float> in = x.to_vector<float>();
  const std::size_t used = gpu.fake.used;
  const std::uint64_t modules = gpu.fake.modules;
  std::vector<float> out(35, -1);
  ASSERT_EQ(f(in.data(), out.data(), nullptr, 0), kOk) << message("mlp");
  expect_close(out, want);
  // With memory of the GPU that the caller has, and with too little of it.
  const std::size_t bytes = other<std::size_t()>("mlp_memory")();
  void* const memory = gpu.device().allocate(bytes);
  std::vector<float> again(35, -1);
  EXPECT_EQ(f(in.data(), again.data(), memory, bytes), kOk);
  EXPECT_EQ(again, out);
  EXPECT_EQ(f(in.data(), again.data(), memory, bytes - 1), kNoMemory);
  expect_contains(message("mlp"), "mlp: too few bytes of memory");
  EXPECT_EQ(f(in.data(), again.data(), static_cast<char*>(memory) + 4, bytes), kFailed);
  expect_contains(message("mlp"), "mlp: memory is not aligned to 64 bytes");
  gpu.device().release(memory, bytes);
  expect_contains(test::read_file(folder_ / "mlp.h"), "f32[5,20], read");
  // What it holds of the GPU goes, and comes again with the next call.
  EXPECT_GT(gpu.fake.used, used);
  EXPECT_EQ(other<int()>("mlp_close")(), kOk);
  EXPECT_EQ(gpu.fake.used, used);
  EXPECT_EQ(gpu.fake.modules, modules);
  EXPECT_EQ(f(in.data(), again.data(), nullptr, 0), kOk);
  EXPECT_EQ(again, out);
  EXPECT_EQ(other<int()>("mlp_close")(), kOk);
}

TEST_F(CudaExport, AttentionTakesItsSizesAsNumbers) {
  auto attend = compile(
      attention,
      {.dims = {{.name = "tokens", .least = 1, .most = 40, .at = {{0, 0}, {1, 0}, {2, 0}}}}});
  const auto draw = [&](std::int64_t n) { return randn({n, 8}, generator_); };
  const Tensor q = draw(5), k = draw(5), v = draw(5);
  attend(q, k, v);
  std::vector<std::vector<Tensor>> cases;
  for (const std::int64_t n : {1, 5, 17, 40}) {
    cases.push_back({draw(n), draw(n), draw(n)});
    cases.back().push_back(attend(cases.back()[0], cases.back()[1], cases.back()[2]));
    cases.back().back().to_vector<float>();
  }
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  attend(q, k, v);
  attend.export_library(path("attend.so"));
  gpu.interpret(ir::parse_graph(attend.graph_text()));
  auto* const f = function<int(std::int64_t, const float*, const float*, const float*, float*,
                               void*, std::size_t)>("attend");
  for (const std::vector<Tensor>& c : cases) {
    std::vector<float> out(static_cast<std::size_t>(c[3].numel()));
    ASSERT_EQ(f(c[0].shape()[0].value(), c[0].to_vector<float>().data(),
                c[1].to_vector<float>().data(), c[2].to_vector<float>().data(), out.data(), nullptr,
                0),
              kOk)
        << message("attend");
    expect_close(out, c[3]);
  }
  for (const std::int64_t n : {-1, 0, 41})
    EXPECT_EQ(f(n, nullptr, nullptr, nullptr, nullptr, nullptr, 0), kBadSize) << n;
}

TEST_F(CudaExport, ATinyGptGivesItsLogits) {
  const models::Gpt gpt({.vocabulary = 50, .context = 16, .layers = 2, .width = 32, .heads = 4},
                        generator_);
  auto logits = compile([&](const Tensor& tokens) { return gpt(tokens); });
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 24; ++i)
    ids.push_back(i * 7 % 50);
  const Tensor tokens = tensor(ids).reshape({2, 12});
  const Tensor want = logits(tokens);
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  logits(tokens);
  logits.export_library(path("gpt.so"));
  gpu.interpret(ir::parse_graph(logits.graph_text()));
  auto* const f = function<int(const std::int64_t*, float*, void*, std::size_t)>("gpt");
  std::vector<float> out(2 * 12 * 50);
  ASSERT_EQ(f(ids.data(), out.data(), nullptr, 0), kOk) << message("gpt");
  expect_close(out, want);
}

TEST_F(CudaExport, WhatATrainingStepChangesIsReplaced) {
  const Tensor x = randn({6, 20}, generator_), y = randn({6, 7}, generator_);
  auto step = test::linear_training_step();
  nn::Linear layer(20, 7, generator_);
  std::vector<float> weight = layer.weight.to_vector<float>(),
                     bias = layer.bias->to_vector<float>();
  std::vector<Tensor> losses;
  for (int i = 0; i < 3; ++i)
    losses.push_back(step(layer, x, y, scalar(0.05F)));
  nn::Linear again(20, 7, generator_);
  again.weight.to_bytes();
  again.bias->to_bytes();
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  step(again, x, y, scalar(0.05F));
  step.export_library(path("train.so"));
  // Behind the loss, the new weight and bias, which are the second and the third input.
  gpu.interpret(ir::parse_graph(step.graph_text()), {{}, {.state_input = 1}, {.state_input = 2}});
  auto* const f =
      function<int(float*, float*, const float*, const float*, float, float*, void*, std::size_t)>(
          "train");
  const std::vector<float> in = x.to_vector<float>(), wanted = y.to_vector<float>();
  for (int i = 0; i < 3; ++i) {
    std::vector<float> got(1);
    ASSERT_EQ(
        f(weight.data(), bias.data(), in.data(), wanted.data(), 0.05F, got.data(), nullptr, 0), kOk)
        << message("train") << test::read_file(folder_ / "train.h");
    expect_close(got, losses[static_cast<std::size_t>(i)]);
  }
  expect_close(weight, layer.weight);
  expect_close(bias, *layer.bias);
}

TEST_F(CudaExport, MemoryOfTheGpuIsTakenWithAStream) {
  const Tensor x = randn({30, 20}, generator_);
  auto twice = compile([](const Tensor& t) { return (t.exp().sum(1) + t.sum(1)).softmax(0); });
  const Tensor want = twice(x);
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  twice(x);
  twice.export_library(path("twice.so"));
  gpu.interpret(ir::parse_graph(twice.graph_text()));
  function<void()>("twice");
  auto* const f = other<int(const float*, float*, void*, std::size_t, void*)>("twice_device");
  const std::vector<float> in = x.to_vector<float>();
  auto* const from = static_cast<float*>(gpu.device().allocate(in.size() * 4));
  auto* const to = static_cast<float*>(gpu.device().allocate(30 * 4));
  gpu.device().copy_in(from, in.data(), in.size() * 4);
  std::vector<float> out(30);
  void* const stream = backend::cuda::context_of(gpu.device())->stream();
  const std::size_t bytes = other<std::size_t()>("twice_device_memory")();
  void* const memory = gpu.device().allocate(bytes + 1);
  for (void* const in_stream : {stream, static_cast<void*>(nullptr)})
    for (void* const own : {memory, static_cast<void*>(nullptr)}) {
      ASSERT_EQ(f(from, to, own, own ? bytes : 0, in_stream), kOk) << message("twice");
      gpu.device().copy_out(out.data(), to, 30 * 4);
      expect_close(out, want);
    }
  EXPECT_EQ(f(from, to + 1, nullptr, 0, stream), kFailed);
  expect_contains(message("twice"), "twice: result is not aligned to 64 bytes");
  for (void* const used : {static_cast<void*>(from), static_cast<void*>(to), memory})
    gpu.device().release(used, 0);
}

/// A launch but for addresses.
struct Seen {
  std::string symbol;
  unsigned blocks, threads, shared;
  friend bool operator==(const Seen&, const Seen&) = default;
};

void see(const testing::FakeLaunch& launch, void* list) {
  static_cast<std::vector<Seen>*>(list)->push_back(
      {launch.symbol, launch.blocks, launch.threads, launch.shared_bytes});
}

// Tensor maps, launches that begin early, resident blocks, dynamic shared memory.
TEST_F(CudaExport, LaunchesAreThoseOfARun) {
  const auto half = [&](const Shape& shape) { return randn(shape, generator_).to(DType::BF16); };
  const Tensor a = half({512, 256}), b = half({256, 512}), row = half({1, 2048}),
               wide = half({2048, 4096}), deep = half({64, 16384}), tall = half({16384, 64}),
               heads = half({8, 512, 64}), numbers = randn({1 << 20}, generator_);
  for (const Tensor& t : {a, b, row, wide, deep, tall, heads, numbers})
    t.to_bytes();
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  const auto expect_same = [&](const std::string& name, auto function_to_compile,
                               const std::vector<Tensor>& arguments) {
    auto f = compile([&](const std::vector<Tensor>& in) { return function_to_compile(in); });
    std::vector<Seen> run, called;
    f(arguments); // the arguments are copied, and the function is traced
    gpu.fake.launcher = see;
    gpu.fake.launcher_data = &run;
    const auto before = gpu.fake;
    f.export_library(path(name + ".so"));
    auto g = compile([&](const std::vector<Tensor>& in) { return function_to_compile(in); });
    g(arguments)[0].to_bytes();
    const auto between = gpu.fake;
    gpu.fake.launcher_data = &called;
    gpu.fake.tensor_map_numbers = before.tensor_map_numbers;
    libraries_.push_back(std::make_unique<backend::c::Library>(path(name + ".so")));
    std::vector<std::vector<std::byte>> memory;
    for (const Tensor& t : arguments)
      memory.push_back(t.to_bytes());
    std::vector<std::byte> result(64 << 20);
    auto* const call = libraries_.back()->function(name);
    const int code = arguments.size() == 1
                         ? reinterpret_cast<int (*)(void*, void*, void*, std::size_t)>(call)(
                               memory[0].data(), result.data(), nullptr, 0)
                         : reinterpret_cast<int (*)(void*, void*, void*, void*, std::size_t)>(call)(
                               memory[0].data(), memory[1].data(), result.data(), nullptr, 0);
    ASSERT_EQ(code, kOk) << name << ": " << message(name);
    EXPECT_FALSE(run.empty()) << name;
    EXPECT_EQ(run, called) << name;
    EXPECT_EQ(between.early_launches - before.early_launches,
              gpu.fake.early_launches - between.early_launches)
        << name;
    EXPECT_EQ(between.tensor_maps - before.tensor_maps, gpu.fake.tensor_maps - between.tensor_maps)
        << name;
    EXPECT_EQ(between.tensor_map_numbers, gpu.fake.tensor_map_numbers) << name;
    EXPECT_EQ(reinterpret_cast<int (*)()>(libraries_.back()->function(name + "_close"))(), kOk);
    gpu.fake.launcher = nullptr;
  };
  const auto product = [](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{matmul(in[0], in[1])};
  };
  expect_same("product", product, {a, b});
  expect_same("row", product, {row, wide});
  expect_same("deep", product, {deep, tall});
  expect_same("heads",
              [](const std::vector<Tensor>& in) {
                return std::vector<Tensor>{
                    softmax(matmul(in[0], in[0].transpose(1, 2)), -1).matmul(in[0])};
              },
              {heads});
  expect_same("sums",
              [](const std::vector<Tensor>& in) { return std::vector<Tensor>{in[0].softmax(0)}; },
              {numbers});
  EXPECT_GT(gpu.fake.tensor_maps, 0u);
  EXPECT_GT(gpu.fake.early_launches, 0u);
}

TEST_F(CudaExport, PtxIsTakenWhereTheMachineCodeIsForAnotherGpu) {
  const Tensor x = randn({30}, generator_);
  auto f = compile([](const Tensor& t) { return t.exp(); });
  const Tensor want = f(x);
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  f(x);
  f.export_library(path("grow.so"));
  gpu.interpret(ir::parse_graph(f.graph_text()));
  auto* const call = function<int(const float*, float*, void*, std::size_t)>("grow");
  const std::vector<float> in = x.to_vector<float>();
  std::vector<float> out(30);
  gpu.fake.failing = "cuModuleLoadData";
  gpu.fake.failure = 209;
  EXPECT_EQ(call(in.data(), out.data(), nullptr, 0), kNoDevice);
  expect_contains(message("grow"), "grow: kernel ");
  expect_contains(message("grow"),
                  " was made for compute capability 9.0 and later and does not run on this GPU");
  gpu.fake.failing = nullptr;
  gpu.fake.only_ptx = true;
  ASSERT_EQ(call(in.data(), out.data(), nullptr, 0), kOk) << message("grow");
  expect_close(out, want);
}

TEST_F(CudaExport, WhatTheDriverRefusesIsSaidAndNothingIsLost) {
  const Tensor w = randn({1000}, generator_), x = randn({1000}, generator_);
  auto f = compile([&](const Tensor& t) { return t.exp() + w; });
  const Tensor want = f(x);
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  f(x);
  f.export_library(path("shift.so"));
  gpu.interpret(ir::parse_graph(f.graph_text()));
  auto* const call = function<int(const float*, float*, void*, std::size_t)>("shift");
  const std::vector<float> in = x.to_vector<float>();
  std::vector<float> out(1000);
  const std::size_t used = gpu.fake.used;
  const std::uint64_t modules = gpu.fake.modules;
  for (const char* name :
       {"cuDevicePrimaryCtxRetain", "cuStreamCreate", "cuMemPoolCreate", "cuMemAllocFromPoolAsync",
        "cuMemcpyHtoDAsync_v2", "cuModuleLoadData", "cuStreamSynchronize"}) {
    gpu.fake.failing = name;
    gpu.fake.failure = 700;
    EXPECT_EQ(call(in.data(), out.data(), nullptr, 0), kFailed) << name;
    expect_contains(message("shift"), "CUDA_ERROR_ILLEGAL_ADDRESS");
    EXPECT_EQ(gpu.fake.used, used) << name;
    EXPECT_EQ(gpu.fake.modules, modules) << name;
  }
  gpu.fake.failing = nullptr;
  ASSERT_EQ(call(in.data(), out.data(), nullptr, 0), kOk) << message("shift");
  const std::size_t open = gpu.fake.used;
  gpu.fake.failing = "cuLaunchKernelEx";
  EXPECT_EQ(call(in.data(), out.data(), nullptr, 0), kFailed);
  expect_contains(message("shift"), "shift: launching kernel ");
  gpu.fake.failing = nullptr;
  gpu.fake.memory = gpu.fake.used;
  EXPECT_EQ(call(in.data(), out.data(), nullptr, 0), kNoMemory);
  expect_contains(message("shift"), "out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
  gpu.fake.memory = std::size_t{1} << 30;
  EXPECT_EQ(gpu.fake.used, open);
  EXPECT_EQ(call(in.data(), out.data(), nullptr, 0), kOk);
  expect_close(out, want);
  EXPECT_EQ(other<int(int)>("shift_open")(0), kOk);
  EXPECT_EQ(other<int(int)>("shift_open")(1), kFailed);
  EXPECT_EQ(other<int()>("shift_close")(), kOk);
  EXPECT_EQ(other<int(int)>("shift_open")(7), kNoDevice);
}

TEST_F(CudaExport, OneCallAtATime) {
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  auto f = compile([](const Tensor& t) { return t.exp(); });
  f(ones({30}));
  f.export_library(path("one.so"));
  using Call = int(const float*, float*, void*, std::size_t);
  struct Within {
    Call* call;
    std::vector<int> codes;
    std::vector<float> in = std::vector<float>(30), out = in;
  } within{function<Call>("one"), {}};
  gpu.fake.launcher = [](const testing::FakeLaunch&, void* data) {
    auto& w = *static_cast<Within*>(data);
    w.codes.push_back(w.call(w.in.data(), w.out.data(), nullptr, 0));
  };
  gpu.fake.launcher_data = &within;
  EXPECT_EQ(within.call(within.in.data(), within.out.data(), nullptr, 0), kOk);
  EXPECT_EQ(within.codes, std::vector<int>{kBusy});
  expect_contains(message("one"), "one: another thread is in a function of this library");
}

TEST_F(CudaExport, WhatNvrtcRefusesIsAnErrorAndNothingIsWritten) {
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  auto f = compile([](const Tensor& t) { return t.exp(); });
  f(ones({30}));
  gpu.fake.compile_error = "f.cu(3): error: it cannot be";
  expect_contains(test::error_of(ErrorKind::Unsupported, [&] { f.export_library(path("f.c")); }),
                  "it cannot be");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  gpu.fake.compile_error = nullptr;
}

// Programs of plain C, in processes of their own.

std::string fake_driver() {
  return fmt::format("EGRET_CUDA_DRIVER={0} EGRET_NVRTC={0}", EGRET_FAKE_CUDA);
}

TEST_F(CudaExport, ArgumentsAndConstantsMayBeResults) {
  const Tensor table = tensor(std::vector<std::int32_t>{4, 5, 6}), half = scalar(0.5F);
  const Tensor x = ones({2}), y = tensor(std::vector<std::int8_t>{-1, 7, 9}), n = scalar(1.0F);
  table.to_bytes();
  testing::InterpretedGpu gpu(EGRET_FAKE_CUDA);
  auto f = compile([&](const Tensor& a, const Tensor& b, const Tensor& number) {
    return std::vector<Tensor>{a * 2 + number, b, table, scalar(2.5F), number, half, zeros({0, 3})};
  });
  f(x, y, n);
  f.export_library(path("several.c"));
  test::write_file(folder_ / "main.c", R"(#include "several.h"
int main(void) {
  const float x[] = {10, 20};
  const int8_t y[] = {3, 4, 5};
  float doubled[2], number = 0, same_number = 0, captured = 0;
  int8_t same[3] = {0};
  int32_t ints[3] = {0};
  if (several(x, y, 3, doubled, same, ints, &number, &same_number, &captured, 0, 0, 0) != several_OK)
    return 1;
  if (same[0] != 3 || same[2] != 5 || ints[0] != 4 || ints[2] != 6) return 2;
  return number == 2.5f && same_number == 3 && captured == 0.5f ? 0 : 3;
}
)");
  EXPECT_EQ(run_c("main.c several.c", "", fake_driver(), "-ldl"), 0)
      << test::read_file(folder_ / "several.h");
}

TEST_F(CudaExport, AGraphIsExportedByTheCommand) {
  test::write_file(folder_ / "g.txt", "%x: f32[70] = input \"x\"\n"
                                      "%y: f32[70] = exp(%x)\n"
                                      "outputs %y\n");
  const test::Ran ran = test::egret_command(
      "compile --device cuda --export " + path("grow.c") + " " + path("g.txt"), fake_driver());
  ASSERT_EQ(ran.code, 0) << ran.err;
  test::write_file(folder_ / "main.c", R"(#include "grow.h"
#include <stdio.h>
int main(void) {
  float x[70] = {0}, y[70];
  const int code = grow(x, y, 0, 0);
  if (code != grow_OK) {
    puts(grow_message());
    return code;
  }
  return grow_close();
}
)");
  EXPECT_EQ(run_c("main.c grow.c", "", fake_driver(), "-ldl"), 0)
      << test::read_file(folder_ / "grow.h");
  const std::string there = "cd " + folder_.path().string() + " && ";
  const int code =
      std::system((there + "EGRET_CUDA_DRIVER=/nowhere/libcuda.so.1 ./program >said").c_str());
  EXPECT_EQ(WEXITSTATUS(code), kNoDevice);
  expect_contains(test::read_file(folder_ / "said"), "grow: no CUDA driver: /nowhere/libcuda.so.1");
  // An empty variable counts as not set: the program itself is not taken for a driver.
  std::system((there + "EGRET_CUDA_DRIVER= ./program >said").c_str());
  EXPECT_EQ(test::read_file(folder_ / "said").find("lacks"), std::string::npos);
}

} // namespace
} // namespace egret

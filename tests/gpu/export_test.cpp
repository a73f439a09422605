// Functions as C libraries on the GPU: their values are those of the function, with every kind of
// kernel that a launch prepares something for.
#include "backend/common/default_stream.h"
#include "gpu/gpu.h"
#include "support/exported_library.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/models.h"
#include "egret/random.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using test::expect_close;

class GpuExport : public test::ExportedLibraries {
protected:
  std::string message(const std::string& name) {
    return reinterpret_cast<const char* (*)()>(libraries_.back()->function(name + "_message"))();
  }
  /// Exports what has been called, and calls it with arrays of the host.
  template <class Compiled>
  void expect_same(const std::string& name, const Compiled& compiled,
                   const std::vector<Tensor>& arguments, const Tensor& want, float tolerance) {
    SCOPED_TRACE(name);
    compiled.export_library(path(name + ".so"));
    libraries_.push_back(std::make_unique<backend::c::Library>(path(name + ".so")));
    void* const call = libraries_.back()->function(name);
    std::vector<std::vector<std::byte>> in;
    for (const Tensor& argument : arguments)
      in.push_back(argument.to_bytes());
    std::vector<float> out(static_cast<std::size_t>(want.numel()), -1), again = out;
    for (std::vector<float>* const to : {&out, &again}) {
      int code = -1;
      if (in.size() == 1)
        code = reinterpret_cast<int (*)(void*, void*, void*, std::size_t)>(call)(
            in[0].data(), to->data(), nullptr, 0);
      if (in.size() == 2)
        code = reinterpret_cast<int (*)(void*, void*, void*, void*, std::size_t)>(call)(
            in[0].data(), in[1].data(), to->data(), nullptr, 0);
      if (in.size() == 3)
        code = reinterpret_cast<int (*)(void*, void*, void*, void*, void*, std::size_t)>(call)(
            in[0].data(), in[1].data(), in[2].data(), to->data(), nullptr, 0);
      ASSERT_EQ(code, 0) << message(name);
    }
    expect_close(out, want, tolerance);
    EXPECT_EQ(out, again);
    EXPECT_EQ(reinterpret_cast<int (*)()>(libraries_.back()->function(name + "_close"))(), 0);
  }

  Tensor half(const Shape& shape) { return randn(shape, generator_).to(DType::BF16); }
  Generator generator_{1};
};

TEST_F(GpuExport, ModelsGiveTheirValues) {
  const test::Mlp model = test::mlp(generator_);
  const Tensor x = randn({5, 20}, generator_);
  auto forward = compile([&](const Tensor& input) { return softmax(model(input), -1); });
  const Tensor want = forward(x);
  expect_same("mlp", forward, {x}, want, 2e-5F);

  const models::Gpt gpt({.vocabulary = 50, .context = 16, .layers = 2, .width = 32, .heads = 4},
                        generator_);
  auto logits = compile([&](const Tensor& tokens) { return gpt(tokens); });
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 24; ++i)
    ids.push_back(i * 7 % 50);
  const Tensor tokens = tensor(ids).reshape({2, 12});
  const Tensor of_tokens = logits(tokens);
  expect_same("gpt", logits, {tokens}, of_tokens, 2e-5F);
}

TEST_F(GpuExport, ProductsAndAttentionInBf16) {
  auto product =
      compile([](const Tensor& a, const Tensor& b) { return matmul(a, b).to(DType::F32); });
  for (const auto& [m, n, k] :
       {std::array{512, 512, 256}, {4096, 4096, 1024}, {1, 4096, 2048}, {64, 64, 16384}}) {
    const Tensor a = half({m, k}), b = half({k, n});
    const Tensor want = product(a, b);
    expect_same(fmt::format("product{}", m), product, {a, b}, want, 1e-2F);
  }
  auto attend = compile([](const Tensor& q, const Tensor& k, const Tensor& v) {
    return softmax(matmul(q, k.transpose(1, 2)) * 0.125F, -1).matmul(v).to(DType::F32);
  });
  const Tensor q = half({8, 512, 64}), k = half({8, 512, 64}), v = half({8, 512, 64});
  const Tensor want = attend(q, k, v);
  expect_same("attend", attend, {q, k, v}, want, 1e-2F);
}

TEST_F(GpuExport, ReductionsScansAndSorts) {
  const Tensor x = randn({1 << 20}, generator_), rows = randn({257, 5003}, generator_);
  auto soft = compile([](const Tensor& t) { return t.softmax(0) * 1e6F; });
  const Tensor softened = soft(x);
  expect_same("soft", soft, {x}, softened, 1e-4F);
  auto sums = compile([](const Tensor& t) { return t.cumsum(0); });
  const Tensor summed = sums(x);
  expect_same("sums", sums, {x}, summed, 1e-3F);
  auto columns = compile([](const Tensor& t) { return t.exp().sum(0); });
  const Tensor of_columns = columns(rows);
  expect_same("columns", columns, {rows}, of_columns, 1e-4F);
  auto order = compile([](const Tensor& t) { return sort(t, 0).values; });
  const Tensor sorted = order(x);
  expect_same("order", order, {x}, sorted, 0);
}

TEST_F(GpuExport, ATrainingStepIsReplayed) {
  const Tensor x = randn({64, 20}, generator_), y = randn({64, 7}, generator_);
  auto step = test::linear_training_step();
  nn::Linear layer(20, 7, generator_);
  std::vector<float> weight = layer.weight.to_vector<float>(),
                     bias = layer.bias->to_vector<float>();
  nn::Linear first(20, 7, generator_);
  step(first, x, y, scalar(0.05F));
  step.export_library(path("train.so"));
  auto* const f =
      function<int(float*, float*, const float*, const float*, float, float*, void*, std::size_t)>(
          "train");
  const std::vector<float> in = x.to_vector<float>(), wanted = y.to_vector<float>();
  for (int i = 0; i < 20; ++i) {
    const Tensor loss = step(layer, x, y, scalar(0.05F));
    std::vector<float> got(1);
    ASSERT_EQ(
        f(weight.data(), bias.data(), in.data(), wanted.data(), 0.05F, got.data(), nullptr, 0), 0)
        << message("train");
    expect_close(got, loss);
  }
  expect_close(weight, layer.weight);
  expect_close(bias, *layer.bias);
}

TEST_F(GpuExport, MemoryOfTheGpuIsTakenWithAStream) {
  const Tensor x = randn({300, 2000}, generator_);
  auto twice = compile([](const Tensor& t) { return (t.exp().sum(1) + t.sum(1)).softmax(0); });
  const Tensor want = twice(x);
  twice.export_library(path("twice.so"));
  function<void()>("twice");
  auto* const f = reinterpret_cast<int (*)(const float*, float*, void*, std::size_t, void*)>(
      libraries_.back()->function("twice_device"));
  backend::Device& gpu = testing::gpu();
  const std::vector<float> in = x.to_vector<float>();
  auto* const from = static_cast<float*>(gpu.allocate(in.size() * 4));
  auto* const to = static_cast<float*>(gpu.allocate(300 * 4));
  gpu.copy_in(from, in.data(), in.size() * 4);
  void* const stream = backend::cuda::context_of(gpu)->stream();
  for (int i = 0; i < 100; ++i)
    ASSERT_EQ(f(from, to, nullptr, 0, stream), 0) << message("twice");
  std::vector<float> out(300);
  gpu.copy_out(out.data(), to, 300 * 4);
  expect_close(out, want);
  gpu.synchronize();
  std::vector<float> none(300);
  gpu.copy_in(to, none.data(), 300 * 4);
  gpu.synchronize();
  ASSERT_EQ(f(from, to, nullptr, 0, nullptr), 0) << message("twice"); // the default stream
  dynamic_cast<backend::DefaultStream&>(gpu).synchronize_default();
  gpu.copy_out(out.data(), to, 300 * 4);
  expect_close(out, want);
  gpu.release(from, in.size() * 4);
  gpu.release(to, 300 * 4);
}

} // namespace
} // namespace egret

// Compiled functions and graphs as C libraries: their values, when they are called from C.
#include "support/exported_library.h"
#include "support/run_tool.h"

#include "egret/compile.h"
#include "egret/functional.h"
#include "egret/grad.h"
#include "egret/models.h"
#include "egret/nn.h"
#include "egret/random.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

namespace egret {
namespace {

using test::egret_command;
using test::expect_close;
using test::expect_contains;
using test::Mlp;
using test::mlp;
using test::Ran;

template <class F>
std::string error_of(const F& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class Export : public test::ExportedLibraries {
protected:
  /// Exports the graph of a text, which is in g.txt then, by the command.
  void export_text(const char* library, const std::string& text) {
    test::write_file(folder_ / "g.txt", text);
    const Ran ran = egret_command("compile --export " + path(library) + " " + path("g.txt"));
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
};

TEST_F(Export, WeightsThatAreCapturedArePartOfIt) {
  Generator generator(1);
  const Mlp model = mlp(generator);
  const Tensor x = randn({5, 20}, generator);
  auto forward = compile([&](const Tensor& input) { return softmax(model(input), -1); });
  const Tensor want = forward(x);
  forward.export_library(path("mlp.so"));
  auto* const f = function<int(const float*, float*, void*, std::size_t)>("mlp");
  const std::vector<float> in = x.to_vector<float>();
  std::vector<float> out(35, -1);
  ASSERT_EQ(f(in.data(), out.data(), nullptr, 0), 0);
  expect_close(out, want);
  // With memory of the caller's, and with too little.
  auto* const bytes =
      reinterpret_cast<std::size_t (*)()>(libraries_.back()->function("mlp_memory"));
  void* memory = std::aligned_alloc(64, (bytes() + 63) / 64 * 64);
  std::vector<float> again(35, -1);
  EXPECT_EQ(f(in.data(), again.data(), memory, bytes()), 0);
  EXPECT_EQ(again, out);
  EXPECT_EQ(f(in.data(), again.data(), memory, 8), 2);
  std::free(memory);
  expect_contains(test::read_file(folder_ / "mlp.h"), "f32[5,20], read");
}

TEST_F(Export, WhatATrainingStepChangesIsReplaced) {
  Generator generator(2);
  Mlp model = mlp(generator);
  const Tensor x = randn({6, 20}, generator), y = randn({6, 7}, generator);
  auto step = compile([](Mlp& m, const Tensor& input, const Tensor& wanted, const Tensor& rate) {
    const Tensor loss = (m(input) - wanted).square().mean();

    const std::vector<Tensor> gradients =
        grad(loss, {m.in.weight, *m.in.bias, m.out.weight, *m.out.bias});
    NoGrad off;
    m.in.weight -= rate * gradients[0];
    *m.in.bias -= rate * gradients[1];
    m.out.weight -= rate * gradients[2];
    *m.out.bias -= rate * gradients[3];
    return loss;
  });
  const auto values = [](const Mlp& m) {
    return std::vector<std::vector<float>>{
        m.in.weight.to_vector<float>(), m.in.bias->to_vector<float>(),
        m.out.weight.to_vector<float>(), m.out.bias->to_vector<float>()};
  };
  Mlp first = mlp(generator);
  step(first, x, y, scalar(0.05F));
  std::vector<std::vector<float>> states = values(model);
  step.export_library(path("train.so"));
  auto* const f = function<int(float*, float*, float*, float*, const float*, const float*, float,
                               float*, void*, std::size_t)>("train");
  const std::vector<float> in = x.to_vector<float>(), wanted = y.to_vector<float>();
  for (int i = 0; i < 3; ++i) {
    const Tensor loss = step(model, x, y, scalar(0.05F));
    std::vector<float> got(1);
    ASSERT_EQ(f(states[0].data(), states[1].data(), states[2].data(), states[3].data(), in.data(),
                wanted.data(), 0.05F, got.data(), nullptr, 0),
              0)
        << test::read_file(folder_ / "train.h");
    expect_close(got, loss);
  }
  expect_close(states[0], model.in.weight);
  expect_close(states[3], *model.out.bias);
}

TEST_F(Export, ATinyGptGivesItsLogits) {
  Generator generator(3);
  const models::Gpt gpt({.vocabulary = 50, .context = 16, .layers = 2, .width = 32, .heads = 4},
                        generator);
  auto logits = compile([&](const Tensor& tokens) { return gpt(tokens); });
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 24; ++i)
    ids.push_back(i * 7 % 50);
  const Tensor want = logits(tensor(ids).reshape({2, 12}));
  logits.export_library(path("gpt.so"));
  auto* const f = function<int(const std::int64_t*, float*, void*, std::size_t)>("gpt");
  std::vector<float> out(2 * 12 * 50);
  ASSERT_EQ(f(ids.data(), out.data(), nullptr, 0), 0);
  expect_close(out, want);
}

TEST_F(Export, SizesThatMayDifferAreNumbers) {
  auto attend = compile(
      [](const Tensor& q, const Tensor& k, const Tensor& v) {
        return softmax(matmul(q, k.transpose()), -1).matmul(v);
      },
      {.dims = {{.name = "tokens", .least = 1, .most = 40, .at = {{0, 0}, {1, 0}, {2, 0}}}}});
  Generator generator(4);
  const auto draw = [&](std::int64_t n) { return randn({n, 8}, generator); };
  attend(draw(5), draw(5), draw(5));
  attend.export_library(path("attend.so"));
  auto* const f = function<int(std::int64_t, const float*, const float*, const float*, float*,
                               void*, std::size_t)>("attend");
  for (const std::int64_t n : {1, 5, 17, 40}) {
    const Tensor q = draw(n), k = draw(n), v = draw(n);
    std::vector<float> out(static_cast<std::size_t>(8 * n));
    ASSERT_EQ(f(n, q.to_vector<float>().data(), k.to_vector<float>().data(),
                v.to_vector<float>().data(), out.data(), nullptr, 0),
              0);
    expect_close(out, attend(q, k, v));
  }
  for (const std::int64_t n : {-1, 0, 41})
    EXPECT_EQ(f(n, nullptr, nullptr, nullptr, nullptr, nullptr, 0), 1) << n;
}

TEST_F(Export, ArgumentsAndConstantsMayBeResults) {
  const Tensor table = tensor(std::vector<std::int32_t>{4, 5, 6}), half = scalar(0.5F);
  auto f = compile([&](const Tensor& x, const Tensor& y, const Tensor& n) {
    return std::vector<Tensor>{x * 2 + n, y, table, scalar(2.5F),
                               x * 2 + n, n, half,  zeros({0, 3})};
  });
  f(tensor(std::vector<float>{1, 2}), tensor(std::vector<std::int8_t>{-1, 7, 9}), scalar(1.0F));
  f.export_library(path("several.so"));
  auto* const call =
      function<int(const float*, const std::int8_t*, float, float*, std::int8_t*, std::int32_t*,
                   float*, float*, float*, float*, float*, void*, std::size_t)>("several");
  const float x[] = {10, 20};
  const std::int8_t y[] = {3, 4, 5};
  float doubled[2], number = 0, again[2], same_number = 0, captured = 0;
  std::int8_t same[3];
  std::int32_t ints[3];
  ASSERT_EQ(call(x, y, 3, doubled, same, ints, &number, again, &same_number, &captured, nullptr,
                 nullptr, 0),
            0)
      << test::read_file(folder_ / "several.h");
  EXPECT_EQ(doubled[1], 43);
  EXPECT_EQ(again[0], 23);
  EXPECT_EQ(same[2], 5);
  EXPECT_EQ(ints[1], 5);
  EXPECT_EQ(number, 2.5F);
  EXPECT_EQ(same_number, 3);
  EXPECT_EQ(captured, 0.5F);
}

// Two libraries in one program of plain C, and the same bits with threads.
TEST_F(Export, TextsAreCompiledIntoOneProgram) {
  auto sum = compile([](const Tensor& x) { return x.exp().sum(1); });
  auto also = compile([](const Tensor& x) { return x.exp().sum(1) + 1; });
  Generator generator(5);
  const Tensor x = randn({300, 411}, generator);
  sum(x);
  also(x);
  sum.export_library(path("one.c"));
  also.export_library(path("two.c"));
  test::write_file(folder_ / "main.c", R"(#include "one.h"
#include "two.h"
#include <stdio.h>
static float x[300 * 411], y[300], z[300];
int main(void) {
  for (int i = 0; i < 300 * 411; ++i) x[i] = (float)(i % 1009) / 500 - 1;
  if (one(x, y, 0, 0) != one_OK || two(x, z, 0, 0) != two_OK) return 1;
  FILE* out = fopen("bits", "wb");
  if (!out || fwrite(y, sizeof y, 1, out) != 1 || fclose(out)) return 3;
  for (int i = 0; i < 300; ++i)
    if (z[i] != y[i] + 1) return 2;
  return 0;
}
)");
  ASSERT_EQ(run_c("main.c one.c two.c"), 0);
  const std::string bits = test::read_file(folder_ / "bits");
  if (std::system(("echo 'int main(void) { return 0; }' > " + path("t.c") + " && cc -fopenmp " +
                   path("t.c") + " -o " + path("t") + " 2>" + path("words"))
                      .c_str()) != 0)
    GTEST_SKIP() << "the compiler has no OpenMP";
  for (const char* threads : {"1", "3", "8"}) {
    ASSERT_EQ(run_c("main.c one.c two.c", "-fopenmp", fmt::format("OMP_NUM_THREADS={}", threads)),
              0);
    EXPECT_EQ(test::read_file(folder_ / "bits"), bits) << threads;
  }
}

TEST_F(Export, MistakesAreToldByName) {
  const Tensor w = ones({3});
  auto f = compile([&](const Tensor& x) { return x + w; }, {.name = "shift"});
  expect_contains(error_of([&] { f.export_library(path("f.c")); }),
                  "shift: export_library: not called yet");
  f(ones({3}));
  expect_contains(error_of([&] { f.export_library(path("f.txt")); }),
                  "f.txt ends in neither .c nor .so");
  for (const char* name : {"2f.c", "a-b.c", "while.so", "expf.c", "free.c", ".c"})
    expect_contains(error_of([&] { f.export_library(path(name)); }), "library: ");
  expect_contains(error_of([&] { f.export_library(path("none/f.c")); }), "none");
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  const Tensor large = zeros({(1 << 24) + 1});
  auto g = compile([&](const Tensor& x) { return (x + large).sum(); });
  g(ones({}));
  expect_contains(error_of([&] { g.export_library(path("g.c")); }),
                  "library: the values that g captures take more than 64 MiB");
  auto h = compile([](const Tensor& x) { return x; });
  h(ones({}));
  expect_contains(error_of([&] { h.export_library(path("h.c")); }), "library: h computes nothing");
}

// Inputs may be named as what the library's header declares, and as words of C.
TEST_F(Export, AGraphIsExportedByTheCommand) {
  ASSERT_NO_FATAL_FAILURE(export_text("scaled.c", "%x: bf16[4,6] = input \"scaled_OK\"\n"
                                                  "%n: f32[] = input \"while\" by_value\n"
                                                  "%c: f32[4,6] = cast(%x)\n"
                                                  "%s: f32[4] = sum(%c) axes=[1]\n"
                                                  "%r: f32[1] = reshape(%n)\n"
                                                  "%e: f32[4] = expand(%r)\n"
                                                  "%y: f32[4] = mul(%s, %e)\n"
                                                  "outputs %y\n"));
  test::write_file(folder_ / "main.c", R"(#include "scaled.h"
int main(void) {
  uint16_t x[24];
  float y[4];
  for (int i = 0; i < 24; ++i) x[i] = 0x3f80; /* one */
  if (scaled(x, 2.5f, y, 0, 0) != scaled_OK) return 1;
  return y[0] == 15.0f && y[3] == 15.0f ? 0 : 2;
}
)");
  EXPECT_EQ(run_c("main.c scaled.c"), 0) << test::read_file(folder_ / "scaled.h");
  const Ran bad = egret_command("compile --export " + path("a.out") + " " + path("g.txt"));
  EXPECT_EQ(bad.code, 2);
  expect_contains(bad.err, "a.out` is no NAME.c, NAME.so or NAME.onnx");
  for (const char* name : {"''", ".so", "model.onnx/"})
    expect_contains(
        egret_command(std::string("compile --export ") + name + " " + path("g.txt")).err,
        "is no NAME.c, NAME.so or NAME.onnx");
  const Ran none = egret_command("compile --export " + path("f.so") + " " + path("g.txt"),
                                 "EGRET_CC=/nowhere/cc");
  EXPECT_EQ(none.code, 1);
  EXPECT_FALSE(std::filesystem::exists(path("f.so")));
  EXPECT_FALSE(std::filesystem::exists(path("f.h")));
}

// Sums of bools and of comparisons of narrow numbers as wide integers.
TEST_F(Export, CountsAreRightHoweverMuchTheCompilerOptimizes) {
  ASSERT_NO_FATAL_FAILURE(export_text("counts.c", "%x: i8[64] = input \"x\"\n"
                                                  "%y: i8[64] = input \"y\"\n"
                                                  "%b: bool[64] = input \"b\"\n"
                                                  "%l: bool[64] = lt(%x, %y)\n"
                                                  "%i: i64[64] = cast(%l)\n"
                                                  "%n: i64[] = sum(%i) axes=[0]\n"
                                                  "%j: i64[64] = cast(%b)\n"
                                                  "%m: i64[] = sum(%j) axes=[0]\n"
                                                  "%k: i32[64] = cast(%l)\n"
                                                  "%p: i32[] = sum(%k) axes=[0]\n"
                                                  "outputs %n, %m, %p\n"));
  test::write_file(folder_ / "main.c", R"(#include "counts.h"
int main(void) {
  int8_t x[64], y[64];
  uint8_t b[64];
  int64_t n = 0, m = 0;
  int32_t p = 0;
  for (int i = 0; i < 64; ++i) {
    x[i] = (int8_t)(i % 5);
    y[i] = 2;
    b[i] = i % 3 == 0;
  }
  if (counts(x, y, b, &n, &m, &p, 0, 0) != counts_OK) return 1;
  return n == 26 && m == 22 && p == 26 ? 0 : 2;
}
)");
  for (const char* level : {"-O1", "-O2", "-O3"})
    EXPECT_EQ(run_c("main.c counts.c", level), 0) << level;
}

TEST_F(Export, WhatNothingIsMadeOfMayBeAnInput) {
  ASSERT_NO_FATAL_FAILURE(export_text("few.c", "dim n in 0..9\n"
                                               "dim m in 1..9\n"
                                               "%x: f32[n,m] = input \"x\"\n"
                                               "%u: i64[7] = input \"u\"\n"
                                               "%e: f32[0,4] = input \"e\"\n"
                                               "%s: bool[] = input \"s\" by_value\n"
                                               "%r: f32[n*m] = reshape(%x)\n"
                                               "%y: f32[n*m] = exp(%r)\n"
                                               "%t: f32[4] = sum(%e) axes=[0]\n"
                                               "outputs %y, %y, %t, %u\n"));
  test::write_file(folder_ / "main.c", R"(#include "few.h"
int main(void) {
  float x[2] = {0, 0}, y[2], z[2], t[4] = {1, 1, 1, 1};
  int64_t u[7] = {0, 1, 2, 3, 4, 5, 6}, v[7] = {0};
  if (few(2, 1, x, u, x, 1, y, z, t, v, 0, 0) != few_OK) return 1;
  if (few(0, 1, x, u, x, 1, y, z, t, v, 0, 0) != few_OK) return 2;
  return y[1] == 1.0f && z[1] == 1.0f && t[3] == 0.0f && v[6] == 6 ? 0 : 3;
}
)");
  EXPECT_EQ(run_c("main.c few.c"), 0) << test::read_file(folder_ / "few.h");
  expect_contains(test::read_file(folder_ / "few.h"), "f32[m*n], written");
}

} // namespace
} // namespace egret

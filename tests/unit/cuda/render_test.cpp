// The text of kernels, where a compiler that accepts it is not enough.
#include "backend/cuda/render.h"
#include "kernel/builder.h"

#include "backend/cuda/quick_math.h"
#include "support/rounded_programs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <sstream>

namespace egret::backend::cuda {
namespace {

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++n;
  return n;
}

// Inside of a choice that depends on the thread, a shuffle waits for threads that do not come.
TEST(CudaText, EveryThreadShufflesOnceAStepWhateverTheOperation) {
  for (const DType type : {DType::I8, DType::I64, DType::F32, DType::Bool})
    for (const Monoid monoid : {Monoid::Sum, Monoid::Max}) {
      if (type == DType::Bool && monoid == Monoid::Sum)
        continue;
      kernel::ProgramBuilder b("reduction");
      const Expr t = kernel::thread_variable(32);
      const int in = b.argument("in", type, Expr(32), 64, false);
      const int out = b.argument("out", type, Expr(1), 64, true);
      b.store(out, Expr(0), b.reduce_threads(monoid, b.load(in, t, 1), 32),
              {{t, Expr(0), Expr(1)}});
      kernel::Launch launch;
      launch.workers = 1;
      launch.threads = 32;
      const std::string text = render_cuda(b.finish(launch), CudaTarget{});
      EXPECT_EQ(count(text, "= eg_shuffle_xor("), 5u) << text; // 16, 8, 4, 2, 1
      EXPECT_EQ(count(text, "eg_shuffle_xor("), 6u) << text;   // and its definition
    }
}

/// Programmatic dependent launch: every kernel waits, small ones let the next one come early.
TEST(CudaText, KernelsWaitForTheLaunchBeforeThem) {
  const auto text_for = [](int capability, std::int64_t blocks) {
    kernel::ProgramBuilder b("copy");
    const Expr t = kernel::thread_variable(32);
    const int in = b.argument("in", DType::F32, Expr(32), 64, false);
    const int out = b.argument("out", DType::F32, Expr(32), 64, true);
    b.store(out, t, b.load(in, t, 1));
    kernel::Launch launch;
    launch.workers = blocks;
    launch.threads = 32;
    return render_cuda(b.finish(launch), CudaTarget{capability, false});
  };
  const std::string wait = "  eg_wait_for_launch_before();\n";
  for (const int capability : {90, 120}) {
    const std::string few = text_for(capability, 64), many = text_for(capability, 65);
    for (const std::string& text : {few, many}) {
      ASSERT_EQ(count(text, wait), 1u) << text;
      EXPECT_LT(text.find(wait), text.find("args.p[")) << text;
      EXPECT_EQ(count(text, "griddepcontrol.wait;"), 1u) << text;
      // What is read was perhaps written after this kernel began. Its pointer is known behind the
      // wait, and so are the loads, which nothing else orders.
      EXPECT_EQ(count(text, "__ldg("), 0u) << text;
      EXPECT_EQ(count(text, "= eg_load(&b0["), 1u) << text;
      EXPECT_EQ(count(text, "asm(\"ld.global.f32 %0, [%1];\" : \"=f\"(v) : \"l\"(p));"), 1u)
          << text;
      EXPECT_LT(text.find(wait), text.find("b0 = (const float*)eg_after_wait(args.p[0])")) << text;
      EXPECT_EQ(count(text, "eg_after_wait(args.p["), 1u) << text; // what is written: as it is
    }
    EXPECT_EQ(count(few, "griddepcontrol.launch_dependents;"), 1u) << few;
    EXPECT_EQ(count(many, "griddepcontrol.launch_dependents;"), 0u) << many;
  }
  EXPECT_EQ(count(text_for(89, 1), "griddepcontrol"), 0u);
  EXPECT_EQ(count(text_for(89, 1), "__ldg("), 1u);
}

/// The text of out = op(in), multiplied by in, perhaps with 1 added, rounded to `stored`.
std::string text_of(Op op, DType stored, bool adds) {
  kernel::ProgramBuilder b("narrow");
  const Expr t = kernel::thread_variable(32);
  const int in = b.argument("in", DType::F32, Expr(32), 64, false);
  const int out = b.argument("out", stored, Expr(32), 64, true);
  const kernel::ValueId x = b.load(in, t, 1);
  std::vector<kernel::ValueId> args{x};
  if (op == Op::Div)
    args.push_back(b.constant(Scalar::of(DType::F32, 3.0)));
  kernel::ValueId y = b.apply(Op::Mul, DType::F32, {b.apply(op, DType::F32, args), x});
  if (adds)
    y = b.apply(Op::Add, DType::F32, {y, b.constant(Scalar::of(DType::F32, 1.0))});
  b.store(out, t, b.cast(y, stored));
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  return render_cuda(b.finish(launch), CudaTarget{});
}

// A sum can make a small relative error a large one, and f32 in memory is what the op table says.
TEST(CudaText, OnlyWhatIsRoundedToSixteenBitsIsMadeQuickly) {
  for (auto [op, quick] : {std::pair{Op::Div, "eg_narrow_div("},
                           {Op::Recip, "eg_narrow_div("},
                           {Op::Exp, "eg_narrow_exp("},
                           {Op::Sigmoid, "eg_narrow_sigmoid("},
                           {Op::Tanh, "eg_narrow_tanh("}}) {
    for (DType stored : {DType::BF16, DType::F16})
      EXPECT_NE(text_of(op, stored, false).find(quick), std::string::npos);
    EXPECT_EQ(text_of(op, DType::F32, false).find(quick), std::string::npos);
    EXPECT_EQ(text_of(op, DType::BF16, true).find(quick), std::string::npos);
  }
}

TEST(CudaText, IntegersAreRoundedInPairsWithoutWiderOnes) {
  kernel::ProgramBuilder b("pairs");
  const Expr first = kernel::thread_variable(32) * Expr(8);
  const int in = b.argument("in", DType::I32, Expr(256), 64, false);
  const int out = b.argument("out", DType::BF16, Expr(256), 64, true);
  b.store(out, first + kernel::lane_variable(8),
          b.cast(b.load(in, first + kernel::lane_variable(8), 8), DType::BF16));
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  const std::string text = render_cuda(b.finish(launch), CudaTarget{});
  EXPECT_EQ(count(text, "= eg_bf16x2(eg_odd(v"), 4u) << text;
  EXPECT_EQ(count(text, "eg_odd((long long)"), 0u) << text;
}

/// The text of x (1 + tanh(y)) + x (1 - tanh(y)^2), rounded to `stored`, `other` being added to
/// both tangents.
std::string text_of_tangents(DType stored, double other) {
  kernel::ProgramBuilder b("tangents");
  const Expr t = kernel::thread_variable(32);
  const int in = b.argument("in", DType::F32, Expr(64), 64, false);
  const int out = b.argument("out", stored, Expr(32), 64, true);
  const auto number = [&](double v) { return b.constant(Scalar::of(DType::F32, v)); };
  const auto apply = [&](Op op, std::vector<kernel::ValueId> args) {
    return b.apply(op, DType::F32, std::move(args));
  };
  const kernel::ValueId x = b.load(in, t, 1), y = b.load(in, t + Expr(32), 1),
                        tangent = apply(Op::Tanh, {y}),
                        plus = apply(Op::Add, {tangent, number(other)}),
                        square = apply(Op::Mul, {tangent, tangent}),
                        minus =
                            apply(Op::Add, {apply(Op::Mul, {square, number(-1)}), number(other)});
  const kernel::ValueId sum =
      apply(Op::Add, {apply(Op::Mul, {x, plus}), apply(Op::Mul, {x, minus})});
  b.store(out, t, b.cast(sum, stored));
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  return render_cuda(b.finish(launch), CudaTarget{});
}

TEST(CudaText, SumsOfOneAndTangentsAreMadeFromOneExponential) {
  const auto uses = [](const std::string& text, const char* name) {
    return count(text, " = " + std::string(name) + "(");
  };
  for (const DType stored : {DType::BF16, DType::F16}) {
    const std::string text = text_of_tangents(stored, 1);
    EXPECT_EQ(uses(text, "eg_quick_exp2"), 1u) << text;
    EXPECT_EQ(uses(text, "eg_quick_recip"), 1u) << text;
    EXPECT_EQ(uses(text, "tanhf"), 0u) << text;
  }
  for (const std::string& text :
       {text_of_tangents(DType::F32, 1), text_of_tangents(DType::BF16, 2)}) {
    EXPECT_EQ(uses(text, "tanhf"), 1u) << text;
    EXPECT_EQ(uses(text, "eg_quick_exp2"), 0u) << text;
  }
}

/// The text of gelu in its tangent form, or of its gradient.
std::string text_of_gelu(bool gradient, DType stored) {
  using Values = std::vector<kernel::ValueId>;
  return render_cuda(
      testing::rounded_program(
          2, 2, 1, stored,
          [&](const testing::RoundedBody& f) {
            const kernel::ValueId x = f.inputs[0], g = f.inputs[1], cubic = f.scalars[0],
                                  outer = f.scalars[1], half = f.number(0.5), xx = f.mul(x, x),
                                  u = f.mul(f.add(x, f.mul(f.mul(xx, x), cubic)), outer),
                                  t = f.op(Op::Tanh, {u}), plus = f.add(t, f.number(1));
            if (!gradient)
              return Values{f.mul(f.mul(x, half), plus)};
            const kernel::ValueId minus = f.add(f.number(1), f.mul(f.mul(t, t), f.number(-1))),
                                  of_u = f.mul(f.mul(f.mul(g, f.mul(x, half)), minus), outer),
                                  of_cube = f.mul(f.mul(of_u, cubic), xx),
                                  three = f.add(of_cube, f.add(of_cube, of_cube));
            return Values{f.add(f.add(of_u, three), f.mul(f.mul(g, plus), half))};
          }),
      CudaTarget{});
}

// Two neighbours a thread; what is the same for both is made once: 2 products of the numbers for
// gelu, 2 more for its gradient.
TEST(CudaText, GeluTakesFewMultiplications) {
  const auto products = [](const std::string& text) {
    std::size_t found = 0;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.find("const float v") != std::string::npos &&
          line.find("* (-1.0f)") == std::string::npos)
        found += count(line, " * ") + count(line, "fmaf(");
    return found;
  };
  for (const DType stored : {DType::BF16, DType::F16}) {
    const std::string forward = text_of_gelu(false, stored), backward = text_of_gelu(true, stored);
    EXPECT_EQ(products(forward), 2u * 4 + 3) << forward;
    EXPECT_EQ(products(backward), 2u * 9 + 5) << backward;
  }
  EXPECT_EQ(products(text_of_gelu(false, DType::F32)), 2u * 6);
}

// Whether a value is finite does not depend on its last bits.
TEST(CudaText, AComparisonWithInfinityLeavesAValueQuick) {
  kernel::ProgramBuilder b("finite");
  const Expr t = kernel::thread_variable(32);
  const int in = b.argument("in", DType::F32, Expr(32), 64, false);
  const int out = b.argument("out", DType::BF16, Expr(32), 64, true);
  const kernel::ValueId e = b.apply(Op::Exp, DType::F32, {b.load(in, t, 1)});
  const auto number = [&](double x) { return b.constant(Scalar::of(DType::F32, x)); };
  const kernel::ValueId finite =
      b.apply(Op::Lt, DType::Bool, {e, number(std::numeric_limits<double>::infinity())});
  b.store(out, t, b.cast(b.apply(Op::Select, DType::F32, {finite, e, number(0)}), DType::BF16));
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  EXPECT_NE(render_cuda(b.finish(launch), CudaTarget{}).find("eg_narrow_exp("), std::string::npos);
}

// The sum of a softmax needs the exact exponentials that its quotients are made of.
TEST(CudaText, AValueWithAnotherUseStaysExact) {
  kernel::ProgramBuilder b("shared");
  const Expr t = kernel::thread_variable(32);
  const int in = b.argument("in", DType::F32, Expr(32), 64, false);
  const int low = b.argument("low", DType::BF16, Expr(32), 64, true);
  const int full = b.argument("full", DType::F32, Expr(32), 64, true);
  const kernel::ValueId e = b.apply(Op::Exp, DType::F32, {b.load(in, t, 1)});
  b.store(low, t, b.cast(e, DType::BF16));
  b.store(full, t, e);
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  const std::string text = render_cuda(b.finish(launch), CudaTarget{});
  EXPECT_NE(text.find(" expf("), std::string::npos) << text;
  EXPECT_EQ(text.find("eg_narrow_exp("), std::string::npos) << text;
}

/// The text of out = in op other, rounded to `type`: four neighbours of each thread.
std::string pairs_text(Op op, DType type, DType in_type, std::optional<double> other) {
  kernel::ProgramBuilder b("pairs");
  const Expr at = kernel::thread_variable(32) * Expr(4) + kernel::lane_variable(4);
  const auto input = [&](const char* name, DType dtype) {
    return b.cast(b.load(b.argument(name, dtype, Expr(128), 64, false), at, 4), DType::F32);
  };
  const kernel::ValueId x = input("in", type);
  const kernel::ValueId y =
      other ? b.splat(b.constant(Scalar::of(DType::F32, *other)), 4) : input("other", in_type);
  const int out = b.argument("out", type, Expr(128), 64, true);
  b.store(out, at, b.cast(b.apply(op, DType::F32, {x, y}), type));
  kernel::Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  return render_cuda(b.finish(launch), CudaTarget{});
}

TEST(CudaText, ProductsAndSumsOfSixteenBitsAreMadeInPairs) {
  for (const Op op : {Op::Mul, Op::Add})
    for (const DType type : {DType::BF16, DType::F16}) {
      const std::string name = std::string("= eg_fma_") + name_of(type) + "x2(";
      EXPECT_EQ(count(pairs_text(op, type, type, {}), name), 2u);
      EXPECT_EQ(count(pairs_text(op, type, type, 0.5), name), 2u);
      // What has more digits is rounded once, behind the operation.
      EXPECT_EQ(count(pairs_text(op, type, type, 0.1), name), 0u);
      EXPECT_EQ(count(pairs_text(op, type, DType::F32, {}), name), 0u);
      EXPECT_EQ(
          count(pairs_text(op, type, type == DType::BF16 ? DType::F16 : DType::BF16, {}), name),
          0u);
    }
  EXPECT_EQ(count(pairs_text(Op::Max, DType::BF16, DType::BF16, {}), "eg_fma"), 0u);
}

// Rounding to f32 first changes nothing: it has more than twice the digits.
TEST(CudaText, ProductsAndSumsInPairsAreThoseByWayOfF32) {
  std::mt19937_64 random(7);
  for (const DType type : {DType::BF16, DType::F16})
    for (int i = 0; i < 200000; ++i) {
      const auto number = [&] { return Scalar{type, random() & 0xffff}.as_double(); };
      const double a = number(), b = number();
      for (const double exact : {a * b, a + b}) {
        if (std::isnan(exact) || std::abs(exact) < 1e-37) // f32 has fewer digits there
          continue;
        const auto once = Scalar::of(type, exact);
        const auto twice = Scalar::of(type, double(float(exact)));
        ASSERT_EQ(once.bits, twice.bits) << a << " and " << b;
      }
    }
}

float quick_quotient(float a, float b, float r) {
  EGRET_QUICK_DIV
}

float from_bits(std::uint64_t bits, std::uint32_t least_exponent, std::uint32_t exponents) {
  const auto mantissa = static_cast<std::uint32_t>(bits & 0x7fffff);
  const auto exponent =
      least_exponent + static_cast<std::uint32_t>(bits >> 23 & 0xffff) % exponents;
  return std::bit_cast<float>(mantissa | exponent << 23 |
                              static_cast<std::uint32_t>(bits >> 63) << 31);
}

// The reciprocal is NVIDIA's, right to one unit in the last place.
TEST(CudaText, QuickQuotientsAreQuotients) {
  std::mt19937_64 random(1);
  for (int units : {-1, 0, 1})
    for (int i = 0; i < 2'000'000; ++i) {
      const float a = from_bits(random(), 90, 76), b = from_bits(random(), 90, 76);
      const float right = static_cast<float>(1.0 / static_cast<double>(b));
      const float r = std::bit_cast<float>(std::bit_cast<std::uint32_t>(right) + units);
      ASSERT_EQ(quick_quotient(a, b, r), a / b) << a << " / " << b << " by " << r;
    }
}

TEST(CudaText, QuickQuotientsOfSpecialNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const auto quotient = [](float a, float b) { return quick_quotient(a, b, 1 / b); };
  EXPECT_EQ(quotient(1, 0), kInf);
  EXPECT_EQ(quotient(-1, 0), -kInf);
  EXPECT_EQ(quotient(3, kInf), 0);
  EXPECT_EQ(quotient(kInf, 3), kInf);
  EXPECT_TRUE(std::signbit(quotient(-0.0f, 3)));
  EXPECT_TRUE(std::isnan(quotient(0, 0)));
  EXPECT_TRUE(std::isnan(quotient(kInf, kInf)));
  for (float tiny : {0x1p-149f, 0x1.8p-130f, 0x1p-101f})
    EXPECT_NEAR(quotient(tiny, 3), tiny / 3, 0x1p-148f + tiny * 0x1p-22f);
}

float quick_root(float x, int units) {
  const float y = x * EGRET_ROOT_SCALE;
  float r = static_cast<float>(1.0 / std::sqrt(static_cast<double>(y)));
  if (r > 0 && std::isfinite(r))
    r = std::bit_cast<float>(std::bit_cast<std::uint32_t>(r) + units);
  EGRET_QUICK_SQRT
}

// The reciprocal root is NVIDIA's, right to 2^-22.9.
TEST(CudaText, QuickRootsAreRoots) {
  std::mt19937_64 random(2);
  for (int units : {-1, 0, 1})
    for (int i = 0; i < 2'000'000; ++i) {
      const float x = std::abs(from_bits(random(), 1, 254));
      ASSERT_EQ(quick_root(x, units), std::sqrt(x)) << x << " by " << units;
    }
}

TEST(CudaText, QuickRootsOfSpecialNumbers) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(quick_root(0, 0), 0);
  EXPECT_TRUE(std::signbit(quick_root(-0.0f, 0)));
  EXPECT_EQ(quick_root(kInf, 0), kInf);
  EXPECT_TRUE(std::isnan(quick_root(-1, 0)));
  EXPECT_TRUE(std::isnan(quick_root(-kInf, 0)));
  EXPECT_TRUE(std::isnan(quick_root(std::nanf(""), 0)));
  for (float x :
       {0x1p-149f, 0x1.8p-130f, 0x1p-101f, 0x1.fffffep127f, 0x1p101f, 0x1p100f, 0x1p-100f})
    EXPECT_EQ(quick_root(x, 0), std::sqrt(x)) << x;
}

/// `x` moved by `units` in its last place; what is below the normal numbers is 0, as it is by
/// instructions with .ftz.
float approximation(float x, int units) {
  for (int i = 0; i < std::abs(units) && std::isfinite(x) && x > 0; ++i)
    x = std::nextafter(x, units < 0 ? 0.0f : std::numeric_limits<float>::infinity());
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

/// What the text of kernels computes.
float narrow_tanh(float x, int units) {
  const float e = approximation(std::exp2(std::fabs(x) * 2.88539008f), units);
  const float r = approximation(1 / (1 + e), units);
  using std::copysign, std::fma;
  EGRET_NARROW_TANH
}

TEST(CudaText, NarrowTangentsAreTangents) {
  for (int units = -2; units <= 2; ++units)
    for (float x = 1e-30f; x < 100; x *= 1.0007f)
      for (const float sign : {1.0f, -1.0f}) {
        const double right = std::tanh(double(sign * x));
        ASSERT_LE(std::fabs(narrow_tanh(sign * x, units) - right), 0x1p-17 * std::fabs(right)) << x;
      }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(narrow_tanh(kInfinity, 0), 1.0f);
  EXPECT_EQ(narrow_tanh(-kInfinity, 0), -1.0f);
  EXPECT_TRUE(std::isnan(narrow_tanh(std::numeric_limits<float>::quiet_NaN(), 0)));
  EXPECT_TRUE(std::signbit(narrow_tanh(-0.0f, 0)));
  EXPECT_EQ(narrow_tanh(-0.0f, 0), 0.0f);
}

float narrow_exp(float x, int units) {
  return approximation(std::exp2(EGRET_NARROW_POWER(x)), units);
}
float narrow_sigmoid(float x, int units) {
  const float e = approximation(std::exp2(EGRET_NARROW_POWER(-x)), units);
  return approximation(1 / (1 + e), units);
}

TEST(CudaText, NarrowExponentialsAreExponentials) {
  for (int units = -2; units <= 2; ++units)
    for (float size = 1e-30f; size < 87.3f; size *= 1.0007f)
      for (const float x : {size, -size}) {
        const double e = std::exp(double(x)), sigmoid = 1 / (1 + std::exp(-double(x)));
        ASSERT_LE(std::fabs(narrow_exp(x, units) - e), 0x1p-17 * e) << x;
        ASSERT_LE(std::fabs(narrow_sigmoid(x, units) - sigmoid), 0x1p-17 * sigmoid) << x;
      }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float x : {kInfinity, 3e38f, 89.0f}) {
    EXPECT_EQ(narrow_exp(x, 0), kInfinity);
    EXPECT_EQ(narrow_sigmoid(x, 0), 1.0f);
    EXPECT_EQ(narrow_exp(-x, 0), 0.0f);
    EXPECT_EQ(narrow_sigmoid(-x, 0), 0.0f);
  }
  EXPECT_TRUE(std::isnan(narrow_exp(std::nanf(""), 0)));
  EXPECT_TRUE(std::isnan(narrow_sigmoid(std::nanf(""), 0)));
}

float narrow_quotient(float a, float b, int units) {
  const float scale = EGRET_NARROW_SCALE, divisor = b * scale;
  const float r = std::copysign(approximation(std::fabs(1 / divisor), units), divisor);
  return a * r * scale;
}

TEST(CudaText, NarrowQuotientsAreQuotients) {
  std::mt19937_64 random(4);
  for (int units = -1; units <= 1; ++units)
    for (int i = 0; i < 500'000; ++i) {
      const float b = from_bits(random(), 1, 254);
      const float a = b * from_bits(random(), 110, 30); // a quotient near 1
      if (!std::isnormal(a))
        continue;
      const double right = double(a) / double(b);
      ASSERT_LE(std::fabs(narrow_quotient(a, b, units) - right), 0x1p-17 * std::fabs(right))
          << a << " / " << b;
    }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(narrow_quotient(3, 0.0f, 0), kInfinity);
  EXPECT_EQ(narrow_quotient(3, -0.0f, 0), -kInfinity);
  EXPECT_EQ(narrow_quotient(3, kInfinity, 0), 0.0f);
  EXPECT_EQ(narrow_quotient(0x1p-140f, 0x1p-145f, 0), 32.0f);
  EXPECT_TRUE(std::isnan(narrow_quotient(3, std::nanf(""), 0)));
}

} // namespace
} // namespace egret::backend::cuda

// Sums of products that are rounded to 16 bits: how many operations they take, what they give, and
// what is left as it is written.
#include "kernel/factor_sums.h"

#include "kernel/rounded_uses.h"
#include "support/rounded_programs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace egret::kernel {
namespace {

using testing::kElements;
using testing::Operations;
using testing::operations_of;
using testing::rounded_program;
using testing::RoundedBody;
using testing::run_program;
using testing::without_rounding;
using Values = std::vector<ValueId>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kCubic = 0.044715f, kOuter = 0.7978845608f;

// gelu in its tangent form, as functions of x (input 0), of the gradient of its result (input 1)
// and of the numbers in u = outer (x + cubic x^3) (scalars).

ValueId cube(const RoundedBody& f, ValueId x) {
  return f.mul(f.mul(x, x), x);
}
ValueId inner(const RoundedBody& f) {
  const ValueId x = f.inputs[0];
  return f.mul(f.add(x, f.mul(cube(f, x), f.scalars[0])), f.scalars[1]);
}
Values gelu(const RoundedBody& f) {
  const ValueId one_plus = f.add(f.number(1), f.op(Op::Tanh, {inner(f)}));
  return {f.mul(f.mul(f.inputs[0], f.number(0.5)), one_plus)};
}
Values gelu_gradient(const RoundedBody& f) {
  const ValueId x = f.inputs[0], g = f.inputs[1], t = f.op(Op::Tanh, {inner(f)}),
                minus = f.add(f.number(1), f.mul(f.mul(t, t), f.number(-1))),
                of_u = f.mul(f.mul(f.mul(g, f.mul(x, f.number(0.5))), minus), f.scalars[1]),
                of_cube = f.mul(of_u, f.scalars[0]), of_x = f.mul(f.mul(of_cube, x), x);
  const ValueId sum = f.add(f.add(f.add(of_u, f.mul(of_cube, f.mul(x, x))), of_x), of_x);
  return {f.add(sum, f.mul(f.mul(g, f.add(t, f.number(1))), f.number(0.5)))};
}

TEST(FactoredSums, GeluTakesEightOperations) {
  const KernelProgram written = rounded_program(1, 2, 1, DType::BF16, gelu),
                      factored = with_factored_sums(written);
  verify(factored);
  EXPECT_EQ(operations_of(written), (Operations{2, 7 - 1, 0}));
  // x x, x (outer' + cubic' x x), 1 + e, x r; e r is not needed.
  EXPECT_EQ(operations_of(factored), (Operations{1, 3, 1}));
}

TEST(FactoredSums, TheGradientOfGeluTakesTenOperations) {
  const KernelProgram written = rounded_program(2, 2, 1, DType::BF16, gelu_gradient),
                      factored = with_factored_sums(written);
  verify(factored);
  EXPECT_EQ(operations_of(factored), (Operations{1, 6, 3})) << print(factored);
}

/// The elements from -size to size.
std::vector<float> ramp(float size) {
  std::vector<float> x(kElements);
  for (int i = 0; i < kElements; ++i)
    x[std::size_t(i)] = size * (2.0f * float(i) / (kElements - 1) - 1);
  return x;
}

TEST(FactoredSums, GeluAndItsGradientAreWhatTheyWere) {
  const KernelProgram forward = without_rounding(
                          with_factored_sums(rounded_program(1, 2, 1, DType::BF16, gelu))),
                      backward = without_rounding(
                          with_factored_sums(rounded_program(2, 2, 1, DType::F16, gelu_gradient)));
  const float scalars[] = {kCubic, kOuter};
  for (float size = 1e-20f; size < 1e4f; size *= 1.3f) {
    const std::vector<float> x = ramp(size), g(kElements, 3.0f);
    const std::vector<float> y = run_program(forward, {x}, scalars).at(0),
                             d = run_program(backward, {x, g}, scalars).at(0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], u = double(kOuter) * (v + double(kCubic) * v * v * v),
                   plus = 2 / (1 + std::exp(-2 * u)), minus = plus * (2 - plus), a = 0.5 * plus,
                   b = 0.5 * v * minus * double(kOuter), c = b * 3 * double(kCubic) * v * v;
      EXPECT_NEAR(y[i], v * a, 0x1p-18 * std::fabs(v * a) + 0x1p-43 * std::fabs(v)) << v;
      EXPECT_NEAR(d[i], 3 * (a + b + c),
                  3 * (0x1p-18 * (a + std::fabs(b) + std::fabs(c)) + 0x1p-43 * (1 + v * v)))
          << v;
    }
  }
}

/// 1 + tanh(x) and 1 - tanh(x)^2.
Values tangents(const RoundedBody& f) {
  const ValueId t = f.op(Op::Tanh, {f.inputs[0]});
  return {f.add(t, f.number(1)), f.add(f.mul(f.mul(t, f.number(-1)), t), f.number(1))};
}

TEST(FactoredSums, SumsWithTangentsLoseNothing) {
  const KernelProgram program =
      without_rounding(with_factored_sums(rounded_program(1, 0, 2, DType::BF16, tangents)));
  for (float size = 1e-30f; size < 42; size *= 1.03f) {
    const std::vector<float> x = ramp(size);
    const auto results = run_program(program, {x}, {});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double e = std::exp(2 * double(x[i])), plus = 2 * e / (e + 1),
                   minus = 4 * e / ((e + 1) * (e + 1));
      // An eighth is left for the approximations of a GPU.
      ASSERT_NEAR(results[0][i], plus, plus * (plus > 0x1p-25 ? 0x1.cp-19 : 0x1.cp-17)) << x[i];
      ASSERT_NEAR(results[1][i], minus, minus * (minus > 0x1p-25 ? 0x1.cp-19 : 0x1.cp-17)) << x[i];
    }
  }
}

TEST(FactoredSums, SumsWithTangentsOfSpecialNumbers) {
  const KernelProgram program =
      without_rounding(with_factored_sums(rounded_program(1, 0, 2, DType::BF16, tangents)));
  std::vector<float> x(kElements, 0.0f);
  const float special[] = {kInfinity, -kInfinity, std::nanf(""), 3e38f, -3e38f, 0x1p-149f, -0.0f};
  std::copy(std::begin(special), std::end(special), x.begin());
  const auto results = run_program(program, {x}, {});
  const float plus[] = {2, 0, 0, 2, 0, 1, 1}, minus[] = {0, 0, 0, 0, 0, 1, 1};
  for (std::size_t i = 0; i < std::size(special); ++i)
    if (std::isnan(special[i])) {
      EXPECT_TRUE(std::isnan(results[0][i]) && std::isnan(results[1][i]));
    } else {
      EXPECT_NEAR(results[0][i], plus[i], 0x1p-125) << special[i];
      EXPECT_NEAR(results[1][i], minus[i], 0x1p-125) << special[i];
    }
}

void expect_as_written(const KernelProgram& program) {
  const KernelProgram factored = with_factored_sums(program);
  EXPECT_EQ(print(factored), print(program));
}

// --- What a product with a sum in it is made of. `outer` and `cubic` have no special meaning here.

TEST(FactoredSums, FactorsAreTakenOutOfSums) {
  // k x + c k x^3 as written: five products and a sum.
  const auto body = [](const RoundedBody& f) {
    const ValueId x = f.inputs[0], k = f.scalars[0], c = f.scalars[1];
    return Values{f.add(f.mul(k, x), f.mul(f.mul(f.mul(c, x), f.mul(k, x)), x))};
  };
  EXPECT_EQ(operations_of(with_factored_sums(rounded_program(1, 2, 1, DType::BF16, body))),
            (Operations{0, 2, 1}));
  // a b + a c + b d: a (b + c) + b d.
  const auto three = [](const RoundedBody& f) {
    const Values& v = f.inputs;
    return Values{f.add(f.add(f.mul(v[0], v[1]), f.mul(v[0], v[2])), f.mul(v[1], v[3]))};
  };
  EXPECT_EQ(operations_of(with_factored_sums(rounded_program(4, 0, 1, DType::BF16, three))),
            (Operations{1, 1, 1}));
}

TEST(FactoredSums, PowersAreSquaredAndShared) {
  const auto body = [](const RoundedBody& f) {
    const ValueId x = f.inputs[0];
    ValueId power = x;
    for (int i = 1; i < 8; ++i)
      power = f.mul(power, x);
    return Values{power};
  };
  EXPECT_EQ(operations_of(with_factored_sums(rounded_program(1, 0, 1, DType::F16, body))),
            (Operations{0, 3, 0}));
}

TEST(FactoredSums, AnF32InMemoryKeepsItsBits) {
  expect_as_written(rounded_program(2, 2, 1, DType::F32, gelu_gradient));
  // Also where another result is rounded.
  kernel::ProgramBuilder b("both");
  const Expr at = thread_variable(32);
  const int in = b.argument("in", DType::F32, Expr(32), 64, false),
            low = b.argument("low", DType::BF16, Expr(32), 64, true),
            full = b.argument("full", DType::F32, Expr(32), 64, true);
  const ValueId x = b.load(in, at, 1), xx = b.apply(Op::Mul, DType::F32, {x, x}),
                sum = b.apply(Op::Add, DType::F32, {xx, b.apply(Op::Mul, DType::F32, {xx, x})});
  b.store(low, at, b.cast(sum, DType::BF16));
  b.store(full, at, sum);
  Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  expect_as_written(b.finish(launch));
}

TEST(FactoredSums, ComparedValuesKeepTheirBits) {
  expect_as_written(rounded_program(2, 0, 1, DType::BF16, [](const RoundedBody& f) {
    const ValueId a = f.inputs[0], b = f.inputs[1], sum = f.add(f.mul(a, a), f.mul(a, b)),
                  less = f.b.apply(Op::Lt, DType::Bool, {sum, b});
    return Values{f.op(Op::Select, {less, a, b})};
  }));
  // An exponential asks for the difference as it is written.
  expect_as_written(rounded_program(2, 1, 1, DType::BF16, [](const RoundedBody& f) {
    const ValueId scaled = f.mul(f.inputs[0], f.scalars[0]);
    return Values{f.op(Op::Exp, {f.add(scaled, f.mul(f.inputs[1], f.number(-1)))})};
  }));
}

TEST(FactoredSums, ValuesCarriedThroughALoopKeepTheirBits) {
  kernel::ProgramBuilder b("carried");
  const Expr at = thread_variable(32);
  const int in = b.argument("in", DType::F32, Expr(32), 64, false),
            out = b.argument("out", DType::BF16, Expr(32), 64, true);
  const VarId sum = b.variable({DType::F32, 1});
  const ValueId x = b.load(in, at, 1);
  b.loop(Expr(0), Expr(4), Expr(1), Expr(4), Bind::Serial, [&](const Expr&) {
    const ValueId s = b.read(sum);
    b.set(sum,
          b.apply(Op::Add, DType::F32,
                  {b.apply(Op::Mul, DType::F32, {s, x}), b.apply(Op::Mul, DType::F32, {x, x})}));
  });
  b.store(out, at, b.cast(b.read(sum), DType::BF16));
  Launch launch;
  launch.workers = 1;
  launch.threads = 32;
  expect_as_written(b.finish(launch));
}

TEST(FactoredSums, DifferencesOfExactValuesStayByThemselves) {
  // (x - m) k g, and (x - m) + y: multiplied out, x and m could be large and their difference lost.
  expect_as_written(rounded_program(3, 1, 2, DType::BF16, [](const RoundedBody& f) {
    const ValueId difference = f.add(f.inputs[0], f.mul(f.inputs[1], f.number(-1)));
    return Values{f.mul(f.mul(difference, f.scalars[0]), f.inputs[2]),
                  f.add(difference, f.inputs[2])};
  }));
}

TEST(FactoredSums, EqualNumbersCancel) {
  // x k - y, and the same where more is to be won.
  const auto body = [](const RoundedBody& f) {
    const ValueId x = f.inputs[0], y = f.inputs[1],
                  difference = f.add(f.mul(x, f.scalars[0]), f.mul(y, f.number(-1))),
                  a = f.inputs[2], sum = f.add(f.mul(a, x), f.mul(a, y));
    return Values{difference, f.mul(sum, a)};
  };
  const KernelProgram written = rounded_program(3, 1, 2, DType::BF16, body),
                      factored = with_factored_sums(written);
  EXPECT_LT(operations_of(factored).muls, operations_of(written).muls);
  const float k = 0.7f;
  std::vector<float> x(kElements), y(kElements), a(kElements, 2.0f);
  std::mt19937 random(3);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = -1e30f * float(1 + random() % 1000);
    y[i] = x[i] * k;
  }
  const std::vector<float> difference =
      run_program(without_rounding(factored), {x, y, a}, {&k, 1}).at(0);
  for (float d : difference)
    EXPECT_EQ(d, 0.0f);
  // Terms that are nothing together are NaN for an infinity, as they are written.
  expect_as_written(rounded_program(1, 1, 1, DType::BF16, [](const RoundedBody& f) {
    const ValueId product = f.mul(f.inputs[0], f.scalars[0]);
    return Values{f.add(product, f.mul(product, f.number(-1)))};
  }));
}

TEST(FactoredSums, NumbersThatLeaveTheRangeAreNotMultiplied) {
  expect_as_written(rounded_program(1, 0, 1, DType::BF16, [](const RoundedBody& f) {
    return Values{f.mul(f.mul(f.inputs[0], f.number(1e-30)), f.number(1e-30))};
  }));
  expect_as_written(rounded_program(1, 0, 1, DType::BF16, [](const RoundedBody& f) {
    return Values{f.mul(f.mul(f.inputs[0], f.number(1e30)), f.number(1e30))};
  }));
  expect_as_written(rounded_program(1, 0, 1, DType::BF16, [](const RoundedBody& f) {
    return Values{f.mul(f.mul(f.inputs[0], f.number(0)), f.number(3))};
  }));
  EXPECT_EQ(operations_of(with_factored_sums(rounded_program(
                1, 0, 1, DType::BF16,
                [](const RoundedBody& f) {
                  return Values{f.mul(f.mul(f.inputs[0], f.number(1e-20)), f.number(1e10))};
                }))),
            (Operations{0, 1, 0}));
}

TEST(RoundedUses, WhatIsAskedDependsOnTheWayToTheRounding) {
  ValueId product = -1, sum = -1, root = -1, of_exp = -1, quotient = -1;
  const KernelProgram p = rounded_program(1, 0, 2, DType::BF16, [&](const RoundedBody& f) {
    const ValueId x = f.inputs[0];
    product = f.mul(x, x);
    sum = f.add(f.mul(product, x), x);
    root = f.op(Op::Sqrt, {sum});
    of_exp = f.mul(x, f.number(3));
    quotient = f.op(Op::Div, {f.op(Op::Exp, {of_exp}), x});
    return Values{f.mul(root, x), quotient};
  });
  const std::vector<Asked> asked = rounded_uses(p).asked;
  EXPECT_EQ(asked[std::size_t(quotient)], Asked::Narrow);
  EXPECT_EQ(asked[std::size_t(root)], Asked::Narrow);
  EXPECT_EQ(asked[std::size_t(sum)], Asked::Rounded);
  EXPECT_EQ(asked[std::size_t(product)], Asked::Rounded);
  EXPECT_EQ(asked[std::size_t(of_exp)], Asked::F32);
}

} // namespace
} // namespace egret::kernel

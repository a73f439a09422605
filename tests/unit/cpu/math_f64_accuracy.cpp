// The error of the functions that are inlined in f64 over samples of the whole range, against long
// double, and the table that docs/math.md states of them.
#include "support/cpu_levels.h"
#include "support/docs.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

namespace egret {
namespace {

using egret::testing::cpu_at;
using egret::testing::ProgramMaker;
using egret::testing::stated_bounds;

struct Function {
  const char* name;
  Op op;
  long double (*exact)(long double);
};

const Function kFunctions[] = {
    {"exp", Op::Exp, [](long double x) { return std::exp(x); }},
    {"exp2", Op::Exp2, [](long double x) { return std::exp2(x); }},
    {"expm1", Op::Expm1, [](long double x) { return std::expm1(x); }},
    {"log", Op::Log, [](long double x) { return std::log(x); }},
    {"log2", Op::Log2, [](long double x) { return std::log2(x); }},
    {"log1p", Op::Log1p, [](long double x) { return std::log1p(x); }},
    {"sin", Op::Sin, [](long double x) { return std::sin(x); }},
    {"cos", Op::Cos, [](long double x) { return std::cos(x); }},
    {"tanh", Op::Tanh, [](long double x) { return std::tanh(x); }},
    {"sigmoid", Op::Sigmoid, [](long double x) { return 1 / (1 + std::exp(-x)); }},
};

// Error in units of the last place of the exact value; 0 when both are NaN, infinite when only one
// is, or when the sign of a zero or an infinity is wrong.
double ulps(double got, long double exact) {
  if (std::isnan(exact) || std::isnan(got))
    return std::isnan(exact) && std::isnan(got) ? 0 : HUGE_VAL;
  const auto nearest = static_cast<double>(exact);
  if (std::isinf(got) || std::isinf(nearest))
    return got == nearest ? 0 : HUGE_VAL;
  if (nearest == 0 && got == 0 && std::signbit(nearest) != std::signbit(got))
    return HUGE_VAL;
  const int exponent = exact == 0 ? -1074 : std::max(std::ilogb(exact), -1022) - 52;
  return static_cast<double>(
      std::ldexp(std::fabs(static_cast<long double>(got) - exact), -exponent));
}

// Special values, every exponent and sign, the ranges where most of a function happens, and numbers
// beside multiples of pi/2.
std::vector<double> arguments(std::size_t count) {
  std::vector<double> x{0.0,
                        -0.0,
                        1.0,
                        -1.0,
                        HUGE_VAL,
                        -HUGE_VAL,
                        std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::denorm_min(),
                        -std::numeric_limits<double>::denorm_min(),
                        std::numeric_limits<double>::min(),
                        std::numeric_limits<double>::max(),
                        std::numeric_limits<double>::lowest(),
                        1 + 0x1p-52,
                        1 - 0x1p-53,
                        709.78,
                        -745.1,
                        0x1p20,
                        -0x1p-60};
  std::mt19937_64 random(7);
  while (x.size() < count) {
    x.push_back(std::bit_cast<double>(random()));
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    x.push_back((2 * unit - 1) * 745);
    x.push_back((2 * unit - 1) * 3);
    x.push_back(0.5 + unit);
    x.push_back(std::ldexp(2 * unit - 1, -static_cast<int>(random() % 60)));
    const double multiple = std::round(std::ldexp(unit, static_cast<int>(random() % 20)));
    x.push_back(static_cast<double>(static_cast<long double>(multiple) * (M_PIl / 2)));
  }
  x.resize(count);
  return x;
}

void check(const std::string& level, std::int64_t count, int lanes) {
  const auto stated = stated_bounds();
  std::vector<double> x = arguments(static_cast<std::size_t>(count)), y(x.size());
  backend::Device& device = cpu_at(level);
  for (const Function& f : kFunctions) {
    ProgramMaker m("accuracy");
    m.buffer(DType::F64, count, true, false);
    m.buffer(DType::F64, count, false, true);
    m.loop(count, lanes, [&](Expr i) {
      Expr at = lanes == 1 ? i : i + kernel::lane_variable(lanes);
      m.store(1, at, m.apply(f.op, {DType::F64, lanes}, {m.load(0, lanes, at)}));
    });
    auto artifact = device.compile(m.program);
    void* pointers[] = {x.data(), y.data()};
    device.launch(*artifact, m.program, {pointers, nullptr, nullptr, nullptr, nullptr});
    double worst = 0, where = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
      if (const double error = ulps(y[i], f.exact(x[i])); error > worst) {
        worst = error;
        where = x[i];
      }
    if (std::getenv("EGRET_MATH_PRINT") != nullptr)
      std::fprintf(stderr, "%-8s %-6s %.3f ulp at %.17g\n", f.name, level.c_str(), worst, where);
    const auto bound = stated.find(std::string(f.name) + "(f64)");
    ASSERT_NE(bound, stated.end()) << "docs/math.md has no row for " << f.name << "(f64)";
    EXPECT_LE(worst, bound->second) << f.name << "(" << where << ") at " << level;
  }
}

TEST(MathF64Accuracy, StaysWithinTheStatedBounds) {
  check("native", 1 << 18, 4);
}

TEST(MathF64Accuracy, HoldsAtEveryLevelAndWidth) {
  for (const char* level : egret::testing::cpu_levels())
    for (int lanes : {1, 2, 8})
      check(level, 1 << 15, lanes);
}

} // namespace
} // namespace egret

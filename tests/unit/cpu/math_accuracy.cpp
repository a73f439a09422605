// The error of the f32 functions over samples of the whole range, against f64, and the table that
// docs/math.md states of them.
#include "support/cpu_levels.h"
#include "support/docs.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>

namespace egret {
namespace {

using egret::testing::cpu_at;
using egret::testing::ProgramMaker;
using egret::testing::stated_bounds;

constexpr std::int64_t kBlock = 1 << 14;

// y[i] = op(x[i]) on blocks of kBlock.
kernel::KernelProgram unary_program(Op op) {
  ProgramMaker m("accuracy");
  m.buffer(DType::F32, kBlock, true, false);
  m.buffer(DType::F32, kBlock, false, true);
  m.loop(kBlock, 16, [&](Expr i) {
    Expr at = i + kernel::lane_variable(16);
    m.store(1, at, m.apply(op, {DType::F32, 16}, {m.load(0, 16, at)}));
  });
  return m.program;
}

// Error in units of the last place of the exact value; 0 when both are NaN, infinite when only one
// is.
double ulps(float got, double exact) {
  if (std::isnan(exact) || std::isnan(got))
    return std::isnan(exact) && std::isnan(got) ? 0 : HUGE_VAL;
  auto nearest = static_cast<float>(exact);
  if (got == nearest)
    return std::isinf(got)
               ? 0
               : std::fabs(got - exact) /
                     std::ldexp(1.0, std::max(exact == 0 ? -149 : std::ilogb(exact), -126) - 23);
  if (std::isinf(got) || std::isinf(nearest)) {
    // An overflow that comes early or late counts by its distance to the first number beyond the
    // range.
    double limit = std::copysign(0x1p128, exact);
    double value = std::isinf(got) ? std::copysign(0x1p128, got) : got;
    return std::fabs(value - (std::isinf(exact) ? limit : exact)) / 0x1p104;
  }
  return std::fabs(got - exact) /
         std::ldexp(1.0, std::max(exact == 0 ? -149 : std::ilogb(exact), -126) - 23);
}

struct Worst {
  double error = 0;
  float at = 0;
};

// Every stride-th bit pattern of f32, so every exponent, both signs, denormals, infinities and NaN.
Worst sweep(const std::string& level, Op op, std::uint64_t stride) {
  backend::Device& device = cpu_at(level);
  kernel::KernelProgram program = unary_program(op);
  auto artifact = device.compile(program);
  std::vector<float> x(kBlock), y(kBlock);
  void* pointers[] = {x.data(), y.data()};
  kernel::ArgBlock block{pointers, nullptr, nullptr, nullptr, nullptr};
  EvalFloat exact = info_of(op).eval_float;
  Worst worst;
  std::uint64_t bits = 0;
  while (bits < (std::uint64_t{1} << 32)) {
    for (float& v : x) {
      v = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      bits += stride;
    }
    device.launch(*artifact, program, block);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double error = ulps(y[i], exact(static_cast<double>(x[i]), 0, 0));
      if (error > worst.error)
        worst = {error, x[i]};
    }
  }
  return worst;
}

std::vector<Op> functions() {
  return {Op::Exp, Op::Exp2, Op::Expm1, Op::Log, Op::Log2,   Op::Log1p,
          Op::Sin, Op::Cos,  Op::Tanh,  Op::Erf, Op::Sigmoid};
}

// EGRET_MATH_STRIDE=1 measures all 2^32 numbers.
std::uint64_t stride_of(std::uint64_t usual) {
  const char* text = std::getenv("EGRET_MATH_STRIDE");
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

TEST(MathAccuracy, StaysWithinTheStatedBounds) {
  auto stated = stated_bounds();
  for (Op op : functions()) {
    std::string name(info_of(op).name);
    Worst worst = sweep("native", op, stride_of(4099));
    RecordProperty(name, std::to_string(worst.error));
    if (std::getenv("EGRET_MATH_STRIDE") != nullptr)
      std::fprintf(stderr, "%-8s %.3f ulp at %.9g\n", name.c_str(), worst.error,
                   static_cast<double>(worst.at));
    ASSERT_TRUE(stated.count(name)) << "docs/math.md has no row for " << name;
    EXPECT_LE(worst.error, stated[name]) << name << "(" << worst.at << ")";
    EXPECT_LE(stated[name], info_of(op).ulp_f32)
        << name << ": docs/math.md states more than the op table";
  }
}

TEST(MathAccuracy, HoldsOnNarrowerVectors) {
  auto stated = stated_bounds();
  for (const char* level : egret::testing::cpu_levels())
    for (Op op : functions()) {
      Worst worst = sweep(level, op, stride_of(99991));
      EXPECT_LE(worst.error, stated[std::string(info_of(op).name)])
          << level << " " << info_of(op).name << "(" << worst.at << ")";
    }
}

// z[i] = op(x[i], y[i]) over random pairs of bit patterns and of moderate numbers; returns the
// largest error.
Worst sweep_pairs(const std::string& level, Op op, int blocks) {
  ProgramMaker m("accuracy");
  m.buffer(DType::F32, kBlock, true, false);
  m.buffer(DType::F32, kBlock, true, false);
  m.buffer(DType::F32, kBlock, false, true);
  m.loop(kBlock, 16, [&](Expr i) {
    Expr at = i + kernel::lane_variable(16);
    m.store(2, at, m.apply(op, {DType::F32, 16}, {m.load(0, 16, at), m.load(1, 16, at)}));
  });
  backend::Device& device = cpu_at(level);
  auto artifact = device.compile(m.program);
  std::vector<float> x(kBlock), y(kBlock), z(kBlock);
  void* pointers[] = {x.data(), y.data(), z.data()};
  kernel::ArgBlock block{pointers, nullptr, nullptr, nullptr, nullptr};
  EvalFloat exact = info_of(op).eval_float;
  std::mt19937_64 random(5);
  Worst worst;
  for (int b = 0; b < blocks; ++b) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      y[i] = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
      if (i % 4 != 0) { // mostly pairs whose power is in range
        x[i] = std::ldexp(1 + static_cast<float>(random() % (1 << 23)) * 0x1p-23f,
                          static_cast<int>(random() % 40) - 20);
        y[i] = std::ldexp(static_cast<float>(random() % (1 << 24)) * 0x1p-24f - 0.5f,
                          static_cast<int>(random() % 12));
      }
    }
    device.launch(*artifact, m.program, block);
    for (std::size_t i = 0; i < x.size(); ++i) {
      double error = ulps(z[i], exact(static_cast<double>(x[i]), static_cast<double>(y[i]), 0));
      if (error > worst.error)
        worst = {error, x[i]};
    }
  }
  return worst;
}

TEST(MathAccuracy, PowerStaysWithinItsBound) {
  auto stated = stated_bounds();
  ASSERT_TRUE(stated.count("pow"));
  EXPECT_LE(stated["pow"], info_of(Op::Pow).ulp_f32);
  for (const char* level : egret::testing::cpu_levels()) {
    Worst worst = sweep_pairs(level, Op::Pow, 100);
    EXPECT_LE(worst.error, stated["pow"]) << level << " at a base of " << worst.at;
    RecordProperty("pow", std::to_string(worst.error));
  }
}

TEST(MathAccuracy, ModIsRoundedOnce) {
  for (const char* level : egret::testing::cpu_levels()) {
    Worst worst = sweep_pairs(level, Op::Mod, 40);
    EXPECT_LE(worst.error, 0.5) << level << " at a dividend of " << worst.at;
  }
}

} // namespace
} // namespace egret

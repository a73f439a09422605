// The op table: its form, and the definitions at the edges of every row that has edges.
#include "egret/error.h"
#include "egret/op.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace egret {
namespace {

const double kInf = INFINITY, kNaN = NAN;

std::vector<const OpInfo*> rows() {
  std::vector<const OpInfo*> result;
  for (int i = 0; i < kOps; ++i)
    result.push_back(&info_of(static_cast<Op>(i)));
  return result;
}

TEST(OpTable, EveryRowHasANameThatFindsItAndNoTwoShareOne) {
  std::set<std::string_view> names;
  for (const OpInfo* row : rows()) {
    EXPECT_TRUE(names.insert(row->name).second) << row->name;
    ASSERT_TRUE(op_named(row->name)) << row->name;
    EXPECT_EQ(*op_named(row->name), row->op);
    EXPECT_FALSE(row->definition.empty()) << row->name;
    EXPECT_FALSE(row->term.empty()) << row->name;
  }
  EXPECT_FALSE(op_named("matmul"));
  EXPECT_FALSE(op_named(""));
}

TEST(OpTable, RowsThatTakeADTypeHaveItsMeaning) {
  for (const OpInfo* row : rows()) {
    if (!is_elementwise(row->op) || row->cls == OpClass::Convert)
      continue;
    bool floats = row->dtypes != DTypeRule::Integer && row->dtypes != DTypeRule::IntegerBool;
    bool integers = row->dtypes != DTypeRule::Float;
    EXPECT_EQ(row->eval_float != nullptr, floats) << row->name;
    EXPECT_EQ(row->eval_int != nullptr, integers) << row->name;
    EXPECT_TRUE(!row->intrinsic || row->ulp_f32 > 0) << row->name;
  }
}

Scalar run(Op op, DType result, std::initializer_list<Scalar> operands) {
  return apply(op, result, std::vector<Scalar>(operands));
}
double f32(Op op, double a, double b = 0) {
  std::vector<Scalar> operands{Scalar::of(DType::F32, a), Scalar::of(DType::F32, b)};
  operands.resize(static_cast<std::size_t>(info_of(op).arity));
  return apply(op, DType::F32, operands).as_double();
}
std::int64_t integer(Op op, DType type, std::int64_t a, std::int64_t b) {
  return run(op, type, {Scalar::of(type, a), Scalar::of(type, b)}).as_int();
}
bool is_zero(double x, bool negative) {
  return x == 0 && std::signbit(x) == negative;
}

TEST(OpTable, IntegerDivisionIsTotal) {
  EXPECT_EQ(integer(Op::IDiv, DType::I32, 7, 2), 3);
  EXPECT_EQ(integer(Op::IDiv, DType::I32, -7, 2), -4);
  EXPECT_EQ(integer(Op::IDiv, DType::I32, 7, -2), -4);
  EXPECT_EQ(integer(Op::IDiv, DType::I32, 5, 0), 0);
  EXPECT_EQ(integer(Op::Mod, DType::I32, 5, 0), 0);
  EXPECT_EQ(integer(Op::Mod, DType::I32, -7, 3), 2);
  EXPECT_EQ(integer(Op::Mod, DType::I32, 7, -3), -2);
  for (DType type : {DType::I8, DType::I16, DType::I32, DType::I64}) {
    std::int64_t lowest = identity_of(Monoid::Max, type).as_int();
    EXPECT_EQ(integer(Op::IDiv, type, lowest, -1), lowest) << name_of(type);
    EXPECT_EQ(integer(Op::Mod, type, lowest, -1), 0) << name_of(type);
  }
  // 2^64 - 1 is no -1
  EXPECT_EQ(integer(Op::IDiv, DType::U64, -1, 2), INT64_MAX);
  EXPECT_EQ(integer(Op::Mod, DType::U64, -1, 10), 5);
}

TEST(OpTable, ArithmeticWrapsInTheDType) {
  EXPECT_EQ(integer(Op::Add, DType::I8, 127, 1), -128);
  EXPECT_EQ(integer(Op::Add, DType::U8, 255, 1), 0);
  EXPECT_EQ(integer(Op::Mul, DType::I32, 65536, 65536), 0);
  EXPECT_EQ(integer(Op::Add, DType::I64, INT64_MAX, 1), INT64_MIN);
}

TEST(OpTable, ShiftCountsBeyondTheWidthAreDefined) {
  EXPECT_EQ(integer(Op::Shl, DType::I32, 1, 31), INT32_MIN);
  for (std::int64_t count : {32, 33, 64, -1}) {
    EXPECT_EQ(integer(Op::Shl, DType::I32, 3, count), 0) << count;
    EXPECT_EQ(integer(Op::Shr, DType::I32, 3, count), 0) << count;
    EXPECT_EQ(integer(Op::Shr, DType::I32, -3, count), -1) << count;
    EXPECT_EQ(integer(Op::Shr, DType::U32, -3, count), 0) << count;
  }
  EXPECT_EQ(integer(Op::Shr, DType::I8, -128, 3), -16);
  EXPECT_EQ(integer(Op::Shr, DType::U8, 128, 3), 16);
  EXPECT_EQ(integer(Op::Shl, DType::U64, 1, 63), INT64_MIN);
  EXPECT_EQ(integer(Op::Shl, DType::U64, 1, 64), 0);
}

TEST(OpTable, MaxPropagatesNaNAndPrefersPlusZero) {
  EXPECT_TRUE(std::isnan(f32(Op::Max, kNaN, 1)));
  EXPECT_TRUE(std::isnan(f32(Op::Max, -kInf, kNaN)));
  EXPECT_TRUE(is_zero(f32(Op::Max, -0.0, 0.0), false));
  EXPECT_TRUE(is_zero(f32(Op::Max, 0.0, -0.0), false));
  EXPECT_TRUE(is_zero(f32(Op::Max, -0.0, -0.0), true));
  EXPECT_EQ(integer(Op::Max, DType::U64, -1, 1), -1) << "unsigned: 2^64 - 1 is the larger";
  EXPECT_EQ(integer(Op::Max, DType::Bool, 0, 1), 1);
}

TEST(OpTable, ComparisonsWithNaNAreFalse) {
  auto compare = [](Op op, double a, double b) {
    return run(op, DType::Bool, {Scalar::of(DType::F64, a), Scalar::of(DType::F64, b)}).bits;
  };
  EXPECT_EQ(compare(Op::Eq, kNaN, kNaN), 0u);
  EXPECT_EQ(compare(Op::Lt, kNaN, 1), 0u);
  EXPECT_EQ(compare(Op::Lt, 1, kNaN), 0u);
  EXPECT_EQ(compare(Op::Eq, 0.0, -0.0), 1u);
  EXPECT_EQ(compare(Op::Lt, -0.0, 0.0), 0u);
  EXPECT_EQ(integer(Op::Lt, DType::U64, 1, -1), 1);
  EXPECT_EQ(integer(Op::Lt, DType::Bool, 0, 1), 1);
}

TEST(OpTable, FloatModHasTheSignOfTheDivisor) {
  EXPECT_EQ(f32(Op::Mod, -7, 3), 2);
  EXPECT_EQ(f32(Op::Mod, 7, -3), -2);
  EXPECT_EQ(f32(Op::Mod, 5.5, 2), 1.5);
  EXPECT_TRUE(is_zero(f32(Op::Mod, -6, 3), false));
  EXPECT_TRUE(is_zero(f32(Op::Mod, 6, -3), true));
  EXPECT_TRUE(std::isnan(f32(Op::Mod, 1, 0)));
  EXPECT_TRUE(std::isnan(f32(Op::Mod, kInf, 2)));
  EXPECT_EQ(f32(Op::Mod, 1, kInf), 1);
  EXPECT_EQ(f32(Op::Mod, -1, kInf), kInf);
}

TEST(OpTable, PowIsThatOfC) {
  EXPECT_EQ(f32(Op::Pow, kNaN, 0), 1);
  EXPECT_EQ(f32(Op::Pow, 1, kNaN), 1);
  EXPECT_EQ(f32(Op::Pow, -8, 3), -512);
  EXPECT_TRUE(std::isnan(f32(Op::Pow, -8, 1.0 / 3)));
  EXPECT_EQ(f32(Op::Pow, -0.0, -3), -kInf);
  EXPECT_EQ(f32(Op::Pow, 0.0, -2), kInf);
  EXPECT_EQ(f32(Op::Pow, -1, kInf), 1);
  EXPECT_EQ(f32(Op::Pow, 0.5, kInf), 0);
}

TEST(OpTable, UnaryOpsAtTheirEdges) {
  EXPECT_EQ(f32(Op::Exp2, -kInf), 0);
  EXPECT_EQ(f32(Op::Log2, -0.0), -kInf);
  EXPECT_TRUE(std::isnan(f32(Op::Log2, -1)));
  EXPECT_TRUE(std::isnan(f32(Op::Sin, kInf)));
  EXPECT_TRUE(is_zero(f32(Op::Sqrt, -0.0), true));
  EXPECT_EQ(f32(Op::Recip, -0.0), -kInf);
  EXPECT_TRUE(is_zero(f32(Op::Trunc, -0.5), true));
  EXPECT_EQ(f32(Op::Floor, -0.5), -1);
  EXPECT_EQ(f32(Op::Tanh, -kInf), -1);
  EXPECT_EQ(f32(Op::Erf, kInf), 1);
  EXPECT_EQ(f32(Op::Log1p, -1), -kInf);
  EXPECT_EQ(f32(Op::Expm1, -kInf), -1);
  EXPECT_EQ(f32(Op::Sigmoid, -kInf), 0);
  EXPECT_EQ(f32(Op::Sigmoid, kInf), 1);
  EXPECT_FLOAT_EQ(static_cast<float>(f32(Op::Sigmoid, -80)), 1.8048513e-35f);
  EXPECT_EQ(f32(Op::Expm1, 1e-10), static_cast<double>(1e-10f));
}

TEST(OpTable, CastsSaturateWrapAndRoundOnce) {
  auto cast = [](Scalar from, DType to) { return run(Op::Cast, to, {from}); };
  auto f = [](double x) { return Scalar::of(DType::F64, x); };
  auto i = [](std::int64_t x) { return Scalar::of(DType::I64, x); };
  EXPECT_EQ(cast(f(kNaN), DType::I32).as_int(), 0);
  EXPECT_EQ(cast(f(1e10), DType::I32).as_int(), INT32_MAX);
  EXPECT_EQ(cast(f(-kInf), DType::I64).as_int(), INT64_MIN);
  EXPECT_EQ(cast(f(-1), DType::U8).as_int(), 0);
  EXPECT_EQ(cast(f(300), DType::U8).as_int(), 255);
  EXPECT_EQ(cast(f(-2.9), DType::I8).as_int(), -2);
  EXPECT_EQ(cast(f(1e30), DType::U64).bits, UINT64_MAX);
  EXPECT_EQ(cast(i(300), DType::I8).as_int(), 44);
  EXPECT_EQ(cast(i(-1), DType::U16).as_int(), 65535);
  EXPECT_EQ(cast(f(0.25), DType::Bool).bits, 1u);
  EXPECT_EQ(cast(f(kNaN), DType::Bool).bits, 1u);
  EXPECT_EQ(cast(f(-0.0), DType::Bool).bits, 0u);
  EXPECT_EQ(cast(i(256), DType::Bool).bits, 1u);
  EXPECT_EQ(cast(Scalar::from_bits(DType::Bool, 1), DType::BF16).as_double(), 1);
  // 2^24 + 1 lies between two f32; through f64 nothing changes
  EXPECT_EQ(cast(i((1 << 24) + 1), DType::F32).as_double(), 1 << 24);
  // just above the middle of two bf16: rounding first to f64 would lose the last bit
  std::int64_t above = (std::int64_t{0x101} << 54) + 1;
  EXPECT_EQ(cast(i(above), DType::BF16).as_double(), std::ldexp(0x102, 54));
  // unsigned words beyond 2^63
  auto u = [](std::uint64_t x) { return Scalar::from_bits(DType::U64, x); };
  EXPECT_EQ(cast(u(UINT64_MAX), DType::F32).as_double(), 0x1p64);
  EXPECT_EQ(cast(u(0x8080000000000000u), DType::BF16).as_double(), 0x1p63);
  EXPECT_EQ(cast(u(0x8080000000000001u), DType::BF16).as_double(), 0x1.02p63);
}

TEST(OpTable, BitcastKeepsBits) {
  EXPECT_EQ(run(Op::Bitcast, DType::I32, {Scalar::of(DType::F32, 1.0)}).as_int(), 0x3f800000);
  EXPECT_EQ(run(Op::Bitcast, DType::F16, {Scalar::from_bits(DType::BF16, 0x3c00)}).as_double(), 1);
  EXPECT_EQ(run(Op::Bitcast, DType::Bool, {Scalar::of(DType::U8, std::int64_t{4})}).bits, 1u);
}

TEST(OpTable, SelectIgnoresTheOtherBranch) {
  Scalar yes = Scalar::from_bits(DType::Bool, 1), no = Scalar::from_bits(DType::Bool, 0);
  Scalar a = Scalar::of(DType::F32, kNaN), b = Scalar::of(DType::F32, 2.0);
  EXPECT_EQ(run(Op::Select, DType::F32, {no, a, b}), b);
  EXPECT_EQ(run(Op::Select, DType::F32, {yes, a, b}), a);
}

TEST(OpTable, MonoidsHaveTheirIdentity) {
  for (int d = 0; d < kDTypes; ++d) {
    auto type = static_cast<DType>(d);
    for (Monoid monoid : {Monoid::Sum, Monoid::Prod, Monoid::Max}) {
      if (type == DType::Bool && monoid != Monoid::Max)
        continue;
      Scalar identity = identity_of(monoid, type);
      for (double x : {-2.0, 0.0, 1.0, 3.0}) {
        Scalar value = Scalar::of(type, x);
        EXPECT_EQ(run(op_of(monoid), type, {identity, value}), value) << name_of(type) << " " << x;
      }
    }
  }
  EXPECT_EQ(identity_of(Monoid::Max, DType::F16).as_double(), -kInf);
  EXPECT_EQ(monoid_of(Op::ScatterAdd), Monoid::Sum);
  EXPECT_THROW(monoid_of(Op::ScatterSet), InternalError);
  EXPECT_THROW(op_of(Monoid::ArgMax), InternalError);
}

} // namespace
} // namespace egret

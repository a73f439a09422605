// Every elementwise operation of the table, for every dtype it takes, on scalars and vectors,
// against the table's own meaning.
#include "support/cpu_levels.h"
#include "support/program_maker.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace egret {
namespace {

using egret::testing::cpu_at;
using egret::testing::ProgramMaker;

std::vector<DType> all_dtypes() {
  std::vector<DType> all;
  for (int i = 0; i < kDTypes; ++i)
    all.push_back(static_cast<DType>(i));
  return all;
}

// What can go wrong: zeros, ones, extremes, halves, the edges of other types, denormals,
// infinities, NaN.
std::vector<Scalar> edges(DType type) {
  std::vector<Scalar> values;
  if (type == DType::Bool)
    return {Scalar::from_bits(type, 0), Scalar::from_bits(type, 1)};
  if (is_float(type)) {
    for (double x : {0.0,
                     0.5,
                     0.75,
                     1.0,
                     1.5,
                     2.0,
                     2.5,
                     3.0,
                     7.0,
                     100.5,
                     127.5,
                     128.0,
                     255.5,
                     256.0,
                     32767.5,
                     65504.0,
                     65519.9,
                     65520.0,
                     131072.0,
                     2147483520.0,
                     2147483648.0,
                     4294967296.0,
                     9.2233720368547758e18,
                     1.8446744073709552e19,
                     1e30,
                     3.4028234663852886e38,
                     1.1754943508222875e-38,
                     1e-40,
                     1.4e-45,
                     6.1e-5,
                     6e-8,
                     3e-8,
                     1e-3,
                     20.0,
                     87.5,
                     88.8,
                     104.0,
                     std::numeric_limits<double>::infinity()}) {
      values.push_back(Scalar::of(type, x));
      values.push_back(Scalar::of(type, -x));
    }
    if (type == DType::F64)
      for (double x :
           {1e300, 1e-310, 1.7976931348623157e308, 4.9e-324, 710.0, 3.4028235677973366e38,
            1.0 + 0x1p-40, 1.00390625 + 0x1p-50, 65520.0 - 0x1p-30})
        values.push_back(Scalar::of(type, x));
    values.push_back(Scalar::of(type, std::nan("")));
    return values;
  }
  int bits = static_cast<int>(8 * size_of(type));
  std::uint64_t top = std::uint64_t{1} << (bits - 1);
  for (std::uint64_t x :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3}, std::uint64_t{7},
        std::uint64_t{31}, std::uint64_t{64}, std::uint64_t{100}, top, top - 1, top + 1,
        top | top >> 1, top >> 1, (top >> 3) + 1, 0x12345678abcdef01u}) {
    values.push_back(Scalar::from_bits(type, x & (2 * (top - 1) + 1)));
    values.push_back(Scalar::from_bits(type, (0 - x) & (2 * (top - 1) + 1)));
  }
  return values;
}

Scalar random_scalar(DType type, std::mt19937_64& random) {
  if (type == DType::Bool)
    return Scalar::from_bits(type, random() & 1);
  if (is_float(type) && random() % 4 != 0)
    return Scalar::of(type, std::normal_distribution<double>(0, 3)(random));
  std::uint64_t mask = ~std::uint64_t{0} >> (64 - 8 * size_of(type));
  std::uint64_t bits = random();
  return Scalar::from_bits(type, (random() % 2 ? bits : bits >> 40) & mask);
}

struct Column {
  DType type;
  std::vector<std::uint8_t> bytes;
  explicit Column(DType t, std::size_t n) : type(t), bytes(n * size_of(t) + 64) {}
  void put(std::size_t i, const Scalar& s) {
    std::memcpy(&bytes[i * size_of(type)], &s.bits, size_of(type));
  }
  Scalar get(std::size_t i) const {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &bytes[i * size_of(type)], size_of(type));
    return Scalar::from_bits(type, bits);
  }
};

// Distance in representable numbers; infinite when only one is NaN or a zero has the wrong sign.
double distance(const Scalar& a, const Scalar& b) {
  double x = a.as_double(), y = b.as_double();
  if (std::isnan(x) || std::isnan(y))
    return std::isnan(x) && std::isnan(y) ? 0 : HUGE_VAL;
  if (a.bits == b.bits)
    return 0;
  if (x == 0 && y == 0)
    return HUGE_VAL;
  // As integers: a double has fewer bits than the patterns of f64.
  int bits = static_cast<int>(8 * size_of(a.dtype));
  auto ordered = [&](std::uint64_t w) {
    std::uint64_t sign = std::uint64_t{1} << (bits - 1);
    auto magnitude = static_cast<std::int64_t>(w & (sign - 1));
    return w & sign ? -magnitude : magnitude;
  };
  const std::int64_t first = ordered(a.bits), second = ordered(b.bits);
  return (first < 0) != (second < 0)
             ? std::fabs(static_cast<double>(first) - static_cast<double>(second))
             : std::fabs(static_cast<double>(first - second));
}

double allowed(Op op, DType result) {
  double ulp = std::ceil(info_of(op).ulp_f32);
  if (result == DType::F64)
    return ulp == 0 ? 0 : 4;
  return is_low(result) ? std::min(ulp, 1.0) : ulp;
}

// Runs `op` on rows of operands and compares each result.
void check(const std::string& level, Op op, DType result, const std::vector<DType>& operands,
           int lanes, const std::vector<std::vector<Scalar>>& rows) {
  std::size_t n = rows.size() / static_cast<std::size_t>(lanes) * static_cast<std::size_t>(lanes);
  auto count = static_cast<std::int64_t>(n);
  ProgramMaker m("op");
  std::vector<Column> columns;
  std::vector<void*> pointers;
  for (std::size_t a = 0; a < operands.size(); ++a) {
    m.buffer(operands[a], count, true, false);
    columns.emplace_back(operands[a], n);
    for (std::size_t i = 0; i < n; ++i)
      columns[a].put(i, rows[i][a]);
  }
  Column output(result, n);
  int out = m.buffer(result, count, false, true);
  m.loop(count, lanes, [&](Expr i) {
    Expr at = lanes == 1 ? i : i + kernel::lane_variable(lanes);
    std::vector<kernel::ValueId> args;
    for (std::size_t a = 0; a < operands.size(); ++a)
      args.push_back(m.load(static_cast<int>(a), lanes, at));
    m.store(out, at, m.apply(op, {result, lanes}, args));
  });
  for (Column& c : columns)
    pointers.push_back(c.bytes.data());
  pointers.push_back(output.bytes.data());
  kernel::ArgBlock block{pointers.data(), nullptr, nullptr, nullptr, nullptr};
  backend::Device& device = cpu_at(level);
  device.launch(*device.compile(m.program), m.program, block);
  int failures = 0;
  for (std::size_t i = 0; i < n && failures < 3; ++i) {
    Scalar want = apply(op, result, rows[i]);
    Scalar got = output.get(i);
    bool right = is_float(result) ? distance(got, want) <= allowed(op, result) : got == want;
    if (!right) {
      ++failures;
      std::string text;
      for (const Scalar& s : rows[i])
        text += s.str() + " ";
      ADD_FAILURE() << level << " " << info_of(op).name << " " << name_of(operands[0]) << " -> "
                    << name_of(result) << " x" << lanes << ": (" << text << ") gave " << got.str()
                    << ", not " << want.str();
    }
  }
}

std::vector<std::vector<Scalar>> rows_of(const std::vector<DType>& types, unsigned seed) {
  std::vector<std::vector<Scalar>> rows;
  std::mt19937_64 random(seed);
  std::vector<std::vector<Scalar>> e;
  for (DType t : types)
    e.push_back(edges(t));
  if (types.size() == 1)
    for (const Scalar& a : e[0])
      rows.push_back({a});
  if (types.size() == 2)
    for (const Scalar& a : e[0])
      for (const Scalar& b : e[1])
        rows.push_back({a, b});
  if (types.size() == 3)
    for (const Scalar& a : e[0])
      for (const Scalar& b : e[1])
        rows.push_back({a, b, e[2][random() % e[2].size()]});
  for (int i = 0; i < 512; ++i) {
    std::vector<Scalar> row;
    for (DType t : types)
      row.push_back(random_scalar(t, random));
    rows.push_back(row);
  }
  while (rows.size() % 64 != 0)
    rows.push_back(rows[random() % rows.size()]);
  return rows;
}

bool takes(const OpInfo& row, DType type) {
  switch (row.dtypes) {
  case DTypeRule::Float:
    return is_float(type);
  case DTypeRule::Integer:
    return is_integer(type);
  case DTypeRule::IntegerBool:
    return is_integer(type) || type == DType::Bool;
  case DTypeRule::Number:
    return type != DType::Bool;
  default:
    return true;
  }
}

class Elementwise : public ::testing::TestWithParam<const char*> {};

TEST_P(Elementwise, ArithmeticMeansWhatTheTableSays) {
  for (int i = 0; i < kOps; ++i) {
    const OpInfo& row = info_of(static_cast<Op>(i));
    if (!is_elementwise(row.op) || row.cls == OpClass::Convert)
      continue;
    for (DType type : all_dtypes()) {
      if (!takes(row, type))
        continue;
      std::vector<DType> operands(static_cast<std::size_t>(row.arity), type);
      if (row.op == Op::Select)
        operands[0] = DType::Bool;
      DType result = row.dtypes == DTypeRule::Compare ? DType::Bool : type;
      auto rows = rows_of(operands, static_cast<unsigned>(i));
      // Widths that make one register, a part of one and several; fewer where code is generated by
      // the same rules for narrower registers.
      bool native = std::string(GetParam()) == "native";
      bool wide = type == DType::F32 || type == DType::I32 || type == DType::Bool;
      for (int lanes : native&& wide ? std::vector<int>{1, 2, 16, 64}
                       : native      ? std::vector<int>{1, 8}
                                     : std::vector<int>{8})
        check(GetParam(), row.op, result, operands, lanes, rows);
    }
  }
}

TEST_P(Elementwise, ConversionsMeanWhatTheTableSays) {
  for (DType from : all_dtypes())
    for (DType to : all_dtypes()) {
      auto rows = rows_of({from}, 7);
      for (int lanes :
           std::string(GetParam()) == "native" ? std::vector<int>{1, 16} : std::vector<int>{8}) {
        check(GetParam(), Op::Cast, to, {from}, lanes, rows);
        if (size_of(from) == size_of(to))
          check(GetParam(), Op::Bitcast, to, {from}, lanes, rows);
      }
    }
}

// All 65536 patterns of a half, and every f32 around the points where rounding to a half decides.
TEST_P(Elementwise, HalvesRoundToNearestEven) {
  for (DType half : {DType::F16, DType::BF16}) {
    std::vector<std::vector<Scalar>> patterns, wide;
    for (std::uint64_t bits = 0; bits < 65536; ++bits) {
      Scalar h = Scalar::from_bits(half, bits);
      patterns.push_back({h});
      if (std::isnan(h.as_double()))
        continue;
      std::uint64_t f = std::bit_cast<std::uint32_t>(static_cast<float>(h.as_double()));
      std::uint64_t middle = half == DType::BF16 ? 0x8000 : 0x1000;
      for (std::uint64_t near : {f - 1, f + 1, f + middle - 1, f + middle, f + middle + 1})
        wide.push_back({Scalar::from_bits(DType::F32, near & 0xffffffffu)});
    }
    while (wide.size() % 64 != 0)
      wide.push_back(wide[0]);
    check(GetParam(), Op::Cast, DType::F32, {half}, 16, patterns);
    check(GetParam(), Op::Cast, half, {DType::F32}, 16, wide);
  }
}

// The magnitude of each pattern of a half, as max(x, -x): a conversion that rounds nothing.
TEST_P(Elementwise, NumbersOfBf16AreStoredAsTheyAre) {
  constexpr std::int64_t kPatterns = 65536;
  for (const int lanes : {1, 8}) {
    ProgramMaker m("magnitudes");
    m.buffer(DType::BF16, kPatterns, true, false);
    m.buffer(DType::BF16, kPatterns, false, true);
    const kernel::Type wide{DType::F32, lanes};
    m.loop(kPatterns, lanes, [&](Expr i) {
      const Expr at = lanes == 1 ? i : i + kernel::lane_variable(lanes);
      const kernel::ValueId x = m.apply(Op::Cast, wide, {m.load(0, lanes, at)});
      const kernel::ValueId minus =
          m.apply(Op::Mul, wide, {x, m.constant(Scalar::of(DType::F32, -1.0), lanes)});
      const kernel::ValueId larger = m.apply(Op::Max, wide, {minus, x});
      m.store(1, at, m.apply(Op::Cast, {DType::BF16, lanes}, {larger}));
    });
    Column from(DType::BF16, kPatterns), to(DType::BF16, kPatterns);
    for (std::size_t i = 0; i < kPatterns; ++i)
      from.put(i, Scalar::from_bits(DType::BF16, i));
    void* const pointers[] = {from.bytes.data(), to.bytes.data()};
    const kernel::ArgBlock block{pointers, nullptr, nullptr, nullptr, nullptr};
    backend::Device& device = cpu_at(GetParam());
    device.launch(*device.compile(m.program), m.program, block);
    for (std::size_t i = 0; i < kPatterns; ++i)
      ASSERT_EQ(distance(to.get(i), Scalar::from_bits(DType::BF16, i & 0x7fff)), 0)
          << i << " " << lanes;
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, Elementwise, ::testing::ValuesIn(egret::testing::cpu_levels()),
                         [](const auto& info) { return std::string(info.param); });

} // namespace
} // namespace egret

// Runs the table of functions. EGRET_FUNCTIONS=N multiplies the number of random instances;
// EGRET_FUNCTION=NAME runs the rows that begin so.
#include "egret/error.h"
#include "egret/grad.h"
#include "functions.h"
#include "runtime/runtime.h"
#include "support/op_cases.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <cstring>
#include <numeric>

namespace egret {
namespace {

using namespace testing;
using runtime::Engine;

int times() {
  const char* given = std::getenv("EGRET_FUNCTIONS");
  return given ? std::atoi(given) : 1;
}

class Using {
public:
  explicit Using(Engine engine) : before_(runtime::Runtime::instance().engine()) {
    runtime::Runtime::instance().use(engine);
  }
  ~Using() { runtime::Runtime::instance().use(before_); }

private:
  Engine before_;
};

Shape expr_shape(const Sizes& sizes) {
  return {sizes.begin(), sizes.end()};
}

Tensor upload(const Array& a, DType type) {
  const std::size_t width = size_of(type);
  std::vector<std::byte> bytes(a.values.size() * width);
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const Scalar value = Scalar::of(type, a.values[i]);
    std::memcpy(bytes.data() + i * width, &value.bits, width);
  }
  return from_bytes(type, expr_shape(a.shape), bytes);
}

// The array as a tensor that lies in memory in one of many ways: dense, permuted, backwards, part
// of a larger one, every second element, repeated without being stored.
Tensor laid(const Array& a, DType type, Draw& draw) {
  const auto rank = static_cast<std::int64_t>(a.rank());
  if (!a.repeated.empty() && count_of(a.shape) > 0 && draw.chance(0.8)) {
    const std::size_t axis = a.repeated[0];
    Sizes narrow = a.shape;
    narrow[axis] = 1;
    return upload(Array(narrow, [&](const Sizes& at) { return a[at]; }), type)
        .expand(expr_shape(a.shape));
  }
  if (rank == 0)
    return upload(a, type);
  switch (draw.below(5)) {
  case 0: {
    Sizes order(a.rank()), back(a.rank()), turned;
    std::iota(order.begin(), order.end(), 0);
    for (std::int64_t i = rank; i > 1; --i)
      std::swap(order[std::size_t(i - 1)], order[std::size_t(draw.below(i))]);
    for (std::size_t i = 0; i < order.size(); ++i) {
      back[std::size_t(order[i])] = std::int64_t(i);
      turned.push_back(a.shape[std::size_t(order[i])]);
    }
    const Array stored(turned, [&](const Sizes& at) {
      Sizes from(at.size());
      for (std::size_t i = 0; i < at.size(); ++i)
        from[std::size_t(order[i])] = at[i];
      return a[from];
    });
    return upload(stored, type).permute(back);
  }
  case 1: {
    const std::size_t axis = draw.axis(a.rank()).axis;
    const Array stored(a.shape, [&](Sizes at) {
      at[axis] = a.shape[axis] - 1 - at[axis];
      return a[at];
    });
    return upload(stored, type).flip(std::int64_t(axis));
  }
  case 2: {
    const std::size_t axis = draw.axis(a.rank()).axis;
    const std::int64_t before = draw.below(3), step = draw.pick({1, 2, -2}), n = a.shape[axis];
    Sizes larger = a.shape;
    larger[axis] = before + 2 * n + draw.below(2);
    Array stored(larger, 1);
    each(a.shape, [&](Sizes at) {
      const double value = a[at];
      at[axis] = before + (step < 0 ? 2 * (n - 1 - at[axis]) : step * at[axis]);
      stored[at] = value;
    });
    std::vector<Index> where(axis, Index(Slice::all()));
    if (n == 0)
      where.push_back(Slice(0, 0));
    else if (step < 0)
      where.push_back(Slice(before + 2 * (n - 1),
                            before == 0 ? std::optional<std::int64_t>{} : std::optional(before - 1),
                            -2));
    else
      where.push_back(Slice(before, before + step * n, step));
    return upload(stored, type).index(where);
  }
  default:
    return upload(a, type);
  }
}

std::string text(const Array& a) {
  return fmt::format("{} of [{}]", fmt::join(a.values, " "), fmt::join(a.shape, ","));
}

// What rounding may change of a value near `want`.
double tolerance(DType type, double slack, double want) {
  const double ulp = type == DType::BF16     ? 0x1p-8
                     : type == DType::F16    ? 0x1p-11
                     : type == DType::F32    ? 0x1p-24
                     : type == DType::F64    ? 0x1p-53
                     : type == DType::F8E4M3 ? 0x1p-4
                     : type == DType::F8E5M2 ? 0x1p-3
                                             : 0;
  const double steps = type == DType::F64 || type == DType::F32 ? 100 : 6;
  return steps * slack * ulp * (1 + std::abs(want));
}

bool agrees(double have, double want, DType type, double slack) {
  if (std::isnan(want))
    return std::isnan(have);
  if (slack == 0)
    return have == want && std::signbit(have) == std::signbit(want);
  if (type == DType::F16 && std::abs(want) > 60000)
    return have == want || std::abs(have) > 50000;
  return have == want || std::abs(have - want) <= tolerance(type, slack, want);
}

std::string compare(const Tensor& have, Array want, DType type, const Row& row) {
  if (have.sizes() != want.shape)
    return fmt::format("shape [{}], expected [{}]", fmt::join(have.sizes(), ","),
                       fmt::join(want.shape, ","));
  if (have.dtype() != want.type.value_or(type))
    return fmt::format("dtype {}, expected {}", name_of(have.dtype()),
                       name_of(want.type.value_or(type)));
  const auto values = have.to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    // Integers wrap; what the plain side counted in doubles does not.
    const double rounded =
        is_float(have.dtype()) || std::isinf(want.values[i])
            ? Scalar::of(have.dtype(), want.values[i]).as_double()
            : Scalar::of(have.dtype(), static_cast<std::int64_t>(want.values[i])).as_double();
    const DType worst =
        is_float(have.dtype()) && is_float(type) && size_of(type) < size_of(have.dtype())
            ? type
            : have.dtype();
    if (!agrees(values[i], rounded, worst, row.slack))
      return fmt::format("element {} is {}, expected {} ({})", i, values[i], rounded, text(want));
  }
  return {};
}

std::vector<DType> types_of(Types types) {
  switch (types) {
  case Types::Floats:
    return {DType::F32, DType::F64, DType::F16, DType::BF16};
  case Types::Numbers:
    return {DType::F32, DType::I32, DType::F16, DType::I64, DType::BF16, DType::U8, DType::F64};
  default:
    return {DType::F32, DType::Bool, DType::I64, DType::F16, DType::U8, DType::BF16, DType::F64};
  }
}

// Operands as the dtype holds them.
void round_operands(Instance& instance, DType type) {
  for (Array& a : instance.operands)
    for (double& value : a.values) {
      const DType own = a.type.value_or(type);
      if (own == DType::U8 && value < 0)
        value = -value;
      value = Scalar::of(own, value).as_double();
    }
}

void check_values(const Row& row, int instances) {
  const auto types = types_of(row.types);
  int wrong = 0;
  for (int i = 0; i < instances && wrong < 3; ++i) {
    const DType type = types[std::size_t(i) % types.size()];
    Draw draw(std::uint64_t(i) * 7919 + 17, type, row.special);
    Instance instance = row.make(draw);
    round_operands(instance, type);
    const Arrays want = instance.reference(instance.operands);
    for (Engine engine : {Engine::Reference, Engine::Compiled}) {
      Using in(engine);
      std::string problem;
      try {
        Tensors operands;
        Draw layouts(std::uint64_t(i), type, false);
        for (const Array& a : instance.operands)
          operands.push_back(laid(a, a.type.value_or(type), layouts));
        const Tensors have = instance.call(operands);
        ASSERT_EQ(have.size(), want.size());
        for (std::size_t o = 0; o < have.size() && problem.empty(); ++o) {
          for (std::size_t k = 0; k < operands.size(); ++k)
            if (detail::same_place(have[o], operands[k]))
              problem =
                  fmt::format("result {} is operand {}: an update of one changes the other", o, k);
          if (problem.empty())
            problem = compare(have[o], want[o], type, row);
        }
      } catch (const std::exception& e) {
        problem = e.what();
      }
      if (problem.empty())
        continue;
      ++wrong;
      std::string given;
      for (const Array& a : instance.operands)
        given += "\n  " + text(a);
      ADD_FAILURE() << row.name << " " << name_of(type) << " instance " << i << " on "
                    << (engine == Engine::Compiled ? "the CPU" : "the reference") << ": " << problem
                    << given;
    }
  }
}

// Which operands have gradients.
std::vector<std::size_t> float_operands(const Instance& instance) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < instance.operands.size(); ++i)
    if (!instance.operands[i].type)
      places.push_back(i);
  return places;
}

// The function of the float operands alone, all f64.
auto smooth(const Instance& instance) {
  return [&instance, places = float_operands(instance)](const Tensors& inputs) {
    Tensors operands;
    for (const Array& a : instance.operands)
      operands.push_back(a.type ? upload(a, *a.type) : Tensor());
    for (std::size_t i = 0; i < places.size(); ++i)
      operands[places[i]] = inputs[i];
    Tensors results = instance.call(operands);
    std::erase_if(results, [](const Tensor& r) { return r.dtype() != DType::F64; });
    return results;
  };
}

// Sum of the results, each element with a weight of its own.
Tensor weighted(const Tensors& results) {
  Tensor total = zeros({}, DType::F64);
  for (const Tensor& r : results)
    total = total + (r * (arange(r.numel()).to(DType::F64) * 0.37 + 0.5).reshape(r.shape())).sum();
  return total;
}

// Gradients of the weighted results of `f` at `at`.
Tensors slopes(const std::function<Tensors(const Tensors&)>& f, const Tensors& at) {
  Tensors leaves;
  for (const Tensor& t : at)
    leaves.push_back(t.detach().set_requires_grad());
  const Tensor total = weighted(f(leaves));
  return grad(std::span(&total, 1), leaves);
}

// The gradient of the gradient against differences of the gradient; empty when they agree.
std::string check_second(const std::function<Tensors(const Tensors&)>& f, const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& t : inputs)
    leaves.push_back(t.detach().set_requires_grad());
  const Tensor total = weighted(f(leaves));
  const Tensor slope = weighted(grad(std::span(&total, 1), leaves));
  const Tensors analytic = grad(std::span(&slope, 1), leaves);
  constexpr double step = 1e-5;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto values = inputs[i].to_vector<double>();
    const auto found = analytic[i].to_vector<double>();
    for (std::size_t e = 0; e < values.size(); ++e) {
      auto at = [&](double by) {
        auto moved = values;
        moved[e] += by;
        Tensors there = inputs;
        there[i] = tensor(moved, inputs[i].shape());
        return weighted(slopes(f, there)).item<double>();
      };
      const double numeric = (at(step) - at(-step)) / (2 * step);
      if (!(std::abs(found[e] - numeric) <= 1e-4 + 1e-3 * std::abs(numeric)))
        return fmt::format("second derivative for input {} element {}: analytic {}, numeric {}", i,
                           e, found[e], numeric);
    }
  }
  return {};
}

bool is_finite(const Arrays& arrays) {
  for (const Array& a : arrays)
    for (double value : a.values)
      if (!std::isfinite(value))
        return false;
  return true;
}

void check_gradients(const Row& row, int instances) {
  Using in(Engine::Reference);
  int checked = 0, wrong = 0;
  for (int seed = 0; checked < instances && seed < 6 * instances && wrong < 2; ++seed) {
    Draw draw(std::uint64_t(seed) + 1000003, DType::F64, false);
    const Instance instance = row.make(draw);
    Tensors inputs;
    std::int64_t elements = 0;
    for (std::size_t place : float_operands(instance)) {
      inputs.push_back(upload(instance.operands[place], DType::F64));
      elements += inputs.back().numel();
    }
    if (inputs.empty() || elements > 60 || !is_finite(instance.reference(instance.operands)))
      continue;
    ++checked;
    const auto f = smooth(instance);
    std::string problem;
    try {
      if (const GradCheck first = gradcheck(f, inputs); !first)
        problem = first.first;
      else if (checked % 4 == 1 && elements <= 30)
        problem = check_second(f, inputs);
    } catch (const std::exception& e) {
      problem = e.what();
    }
    if (problem.empty())
      continue;
    ++wrong;
    std::string given;
    for (const Array& a : instance.operands)
      given += "\n  " + text(a);
    ADD_FAILURE() << row.name << " gradient, instance " << seed << ": " << problem << given;
  }
  EXPECT_GE(checked, instances / 2) << row.name;
}

// The gradients as the CPU computes them.
void check_compiled_gradients(const Row& row) {
  for (int seed = 0; seed < 10; ++seed) {
    Draw draw(std::uint64_t(seed) + 2000003, DType::F64, false);
    const Instance instance = row.make(draw);
    const auto places = float_operands(instance);
    std::vector<std::vector<double>> results[2];
    for (Engine engine : {Engine::Reference, Engine::Compiled}) {
      Using in(engine);
      Tensors inputs;
      for (std::size_t place : places)
        inputs.push_back(upload(instance.operands[place], DType::F64).set_requires_grad());
      const Tensor total = weighted(smooth(instance)(inputs));
      for (const Tensor& g : grad(std::span(&total, 1), inputs))
        results[engine == Engine::Compiled].push_back(g.to_vector<double>());
    }
    bool any = false;
    for (std::size_t i = 0; i < results[0].size(); ++i)
      for (std::size_t e = 0; e < results[0][i].size(); ++e) {
        any = true;
        ASSERT_TRUE(agrees(results[1][i][e], results[0][i][e], DType::F64, 1e4))
            << row.name << " gradient of operand " << i << ", element " << e << ": CPU "
            << results[1][i][e] << ", reference " << results[0][i][e];
      }
    if (any)
      return;
  }
}

// A function of one operand on every bit pattern of the floats of 16 and 8 bits.
void check_patterns(const Row& row) {
  for (DType type : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2}) {
    Draw draw(1, type, false);
    Instance instance = row.make(draw);
    const Tensor x = every_pattern(type);
    const auto values = x.to_vector<double>();
    instance.operands[0] = Array({std::ssize(values)});
    instance.operands[0].values = values;
    const Array want = instance.reference(instance.operands)[0];
    const DType result = want.type.value_or(type);
    const double edge = Scalar::of(type, 0.4).as_double(); // a parameter that no type holds exactly
    for (Engine engine : {Engine::Reference, Engine::Compiled}) {
      Using in(engine);
      const Tensor y = instance.call({x})[0];
      ASSERT_EQ(y.dtype(), result) << row.name;
      const auto have = y.to_vector<double>();
      int wrong = 0;
      for (std::size_t i = 0; i < values.size() && wrong < 3; ++i) {
        if ((!row.special && !std::isfinite(values[i])) || std::abs(values[i]) == edge)
          continue;
        const double exact = want.values[i];
        const double margin = std::isfinite(exact) ? tolerance(result, row.slack, exact) : 0;
        const double low = Scalar::of(result, exact - margin).as_double(),
                     high = Scalar::of(result, exact + margin).as_double();
        const bool right = std::isnan(have[i]) ? std::isnan(low) || std::isnan(high)
                           : row.slack == 0
                               ? agrees(have[i], low, result, 0)
                               : !(have[i] < low) && !(have[i] > high) && !std::isnan(exact);
        wrong += !right;
        EXPECT_TRUE(right) << row.name << " of " << values[i] << " in " << name_of(type) << " on "
                           << (engine == Engine::Compiled ? "the CPU" : "the reference") << ": "
                           << have[i] << ", exactly " << exact;
      }
    }
  }
}

void run(const std::vector<Row>& rows, void (*check)(const Row&)) {
  const char* only = std::getenv("EGRET_FUNCTION");
  for (const Row& row : rows)
    if (!only || row.name.starts_with(only))
      check(row);
}

class Functions : public ::testing::TestWithParam<std::vector<Row> (*)()> {};

TEST_P(Functions, HaveTheValuesOfPlainLoops) {
  run(GetParam()(), [](const Row& row) { check_values(row, 7 * times()); });
}

class Pointwise : public ::testing::TestWithParam<std::vector<Row> (*)()> {};

TEST_P(Pointwise, HoldsOnEveryPatternOfLowFloats) {
  run(GetParam()(), [](const Row& row) {
    if (row.pointwise)
      check_patterns(row);
  });
}

INSTANTIATE_TEST_SUITE_P(Math, Pointwise, ::testing::Values(&math_rows));
INSTANTIATE_TEST_SUITE_P(Activations, Pointwise, ::testing::Values(&activation_rows));

TEST_P(Functions, HaveTheGradientsOfDifferences) {
  run(GetParam()(), [](const Row& row) {
    if (row.gradient)
      check_gradients(row, 20 * times());
  });
}

TEST_P(Functions, HaveTheSameGradientsCompiled) {
  run(GetParam()(), [](const Row& row) {
    if (row.gradient)
      check_compiled_gradients(row);
  });
}

INSTANTIATE_TEST_SUITE_P(Math, Functions, ::testing::Values(&math_rows));
INSTANTIATE_TEST_SUITE_P(Activations, Functions, ::testing::Values(&activation_rows));
INSTANTIATE_TEST_SUITE_P(Reductions, Functions, ::testing::Values(&reduction_rows));
INSTANTIATE_TEST_SUITE_P(Shapes, Functions, ::testing::Values(&shape_rows));
INSTANTIATE_TEST_SUITE_P(Products, Functions, ::testing::Values(&product_rows));
INSTANTIATE_TEST_SUITE_P(Indices, Functions, ::testing::Values(&index_rows));
INSTANTIATE_TEST_SUITE_P(Order, Functions, ::testing::Values(&order_rows));
INSTANTIATE_TEST_SUITE_P(Convolutions, Functions, ::testing::Values(&convolution_rows));
INSTANTIATE_TEST_SUITE_P(Layers, Functions, ::testing::Values(&layer_rows));
INSTANTIATE_TEST_SUITE_P(Losses, Functions, ::testing::Values(&loss_rows));
INSTANTIATE_TEST_SUITE_P(Special, Functions, ::testing::Values(&special_rows));
INSTANTIATE_TEST_SUITE_P(Windows, Functions, ::testing::Values(&window_rows));
INSTANTIATE_TEST_SUITE_P(Margins, Functions, ::testing::Values(&margin_rows));
INSTANTIATE_TEST_SUITE_P(Collections, Functions, ::testing::Values(&collection_rows));
INSTANTIATE_TEST_SUITE_P(Fourier, Functions, ::testing::Values(&fourier_rows));
INSTANTIATE_TEST_SUITE_P(Segments, Functions, ::testing::Values(&segment_rows));
INSTANTIATE_TEST_SUITE_P(Linalg, Functions, ::testing::Values(&linalg_rows));
INSTANTIATE_TEST_SUITE_P(Spectral, Functions, ::testing::Values(&spectral_rows));
INSTANTIATE_TEST_SUITE_P(Vision, Functions, ::testing::Values(&vision_rows));

} // namespace
} // namespace egret

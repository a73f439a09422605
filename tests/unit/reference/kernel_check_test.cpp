#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "backend/reference/random_inputs.h"
#include "backend/reference/reference.h"
#include "backend/reference/region_evaluator.h"
#include "compiler/compile.h"
#include "support/null_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

namespace egret {
namespace {

using namespace backend::reference;
using ir::Graph;
using ir::NodeId;
using ::testing::HasSubstr;

/// The kernels that the greedy compiler makes of a graph.
std::vector<kernel::KernelEntry> kernels_of(const Graph& graph) {
  testing::NullDevice device;
  compiler::KernelCache cache;
  return compiler::compile_graph(graph, {}, device, cache).plan.kernels;
}

kernel::KernelEntry kernel_of(const std::function<NodeId(Graph&)>& make) {
  Graph g;
  g.outputs = {make(g)};
  auto kernels = kernels_of(g);
  EXPECT_EQ(kernels.size(), 1u);
  return kernels.at(0);
}

const LaunchKernel by_interpreter = [](const kernel::KernelProgram& program,
                                       const kernel::ArgBlock& block) {
  interpret(program, block, {.workers = 2});
};

NodeId softmax(Graph& g, Shape shape) {
  NodeId x = g.input("x", DType::F32, shape);
  const std::int64_t axis = std::int64_t(shape.size()) - 1;
  Shape kept = shape;
  kept.back() = 1;
  NodeId largest = g.expand(g.reshape(g.reduce(Op::ReduceMax, x, {axis}), kept), shape);
  NodeId minus = g.broadcast(g.constant(DType::F32, -1), shape);
  NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, largest, minus)));
  NodeId total = g.expand(g.reshape(g.reduce(Op::ReduceSum, e, {axis}), kept), shape);
  return g.binary(Op::Div, e, total);
}

NodeId chain(Graph& g, Shape shape) {
  NodeId x = g.input("x", DType::F32, shape);
  NodeId two = g.broadcast(g.constant(DType::F32, 2), shape);
  return g.unary(Op::Tanh, g.binary(Op::Add, g.binary(Op::Mul, x, two), two));
}

NodeId matmul(Graph& g, Expr m, Expr n, Expr k) {
  NodeId a = g.input("a", DType::F32, {m, k}), b = g.input("b", DType::F32, {k, n});
  NodeId left = g.expand(g.reshape(a, {m, 1, k}), {m, n, k});
  NodeId right = g.expand(g.reshape(g.permute(b, {1, 0}), {1, n, k}), {m, n, k});
  return g.reduce(Op::ReduceSum, g.binary(Op::Mul, left, right), {2});
}

TEST(VerifyKernel, AcceptsWhatTheGeneratorsMake) {
  const std::function<NodeId(Graph&)> graphs[] = {
      [](Graph& g) {
        return chain(g, {5, 7});
      },
      [](Graph& g) {
        return softmax(g, {6, 37});
      },
      [](Graph& g) { return matmul(g, 9, 10, 11); },
      [](Graph& g) {
        return g.scan(Op::ScanSum, g.input("x", DType::F32, {3, 19}), 1);
      },
      [](Graph& g) {
        return g.reduce(Op::ReduceArgMax, g.input("x", DType::F32, {4, 9}), {1});
      },
      [](Graph& g) {
        return g.gather(g.input("x", DType::F32, {10, 6}), g.input("i", DType::I32, {7}), 0);
      },
      [](Graph& g) {
        return g.pad(g.input("x", DType::F32, {4, 5}), {1, 0}, {0, 3}, Scalar::of(DType::F32, 9.0));
      },
      [](Graph& g) {
        return g.binary(Op::Mul, g.input("x", DType::BF16, {33}), g.input("y", DType::BF16, {33}));
      },
  };
  for (const auto& make : graphs)
    for (bool special : {false, true}) {
      const auto kernel = kernel_of(make);
      const KernelCheck check = verify_kernel(kernel.region, kernel.program, by_interpreter, {},
                                              {.seed = 7, .special_values = special});
      EXPECT_TRUE(check.ok) << check.message << "\n" << print(kernel.region);
      EXPECT_TRUE(check.complete);
      EXPECT_GT(check.checked, 0);
      EXPECT_LE(check.vacuous, special ? check.checked / 2 : check.checked / 10);
    }
}

TEST(VerifyKernel, ChecksScattersWithTheirData) {
  for (Op op : {Op::ScatterAdd, Op::ScatterSet, Op::ScatterMax}) {
    Graph g;
    NodeId data = g.input("d", DType::F32, {8, 3}), updates = g.input("u", DType::F32, {20, 3});
    g.outputs = {g.scatter(op, data, g.input("i", DType::I64, {20}), updates, 0)};
    bool found = false;
    for (const auto& kernel : kernels_of(g)) {
      found |= classify(kernel.region) == kernel::Form::Scatter;
      const KernelCheck check = verify_kernel(kernel.region, kernel.program, by_interpreter);
      EXPECT_TRUE(check.ok) << check.message;
    }
    EXPECT_TRUE(found);
  }
}

TEST(VerifyKernel, SamplesLargeKernels) {
  const auto kernel = kernel_of([](Graph& g) { return softmax(g, {512, 300}); });
  const KernelCheck check =
      verify_kernel(kernel.region, kernel.program, by_interpreter, {}, {.complete_work = 1000});
  EXPECT_TRUE(check.ok) << check.message;
  EXPECT_FALSE(check.complete);
  EXPECT_GE(check.checked, 16);
  EXPECT_LE(check.checked, 1000);
}

// --- planted mistakes

/// A program that does something else than its region says, by a change of its result.
KernelCheck with_mistake(const std::function<void(const kernel::ArgBlock&)>& mistake,
                         KernelCheckOptions options = {}, Shape shape = {64, 40}) {
  const auto kernel = kernel_of([&](Graph& g) { return chain(g, shape); });
  return verify_kernel(
      kernel.region, kernel.program,
      [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
        interpret(program, block);
        mistake(block);
      },
      {}, options);
}

float* output_of(const kernel::ArgBlock& block) {
  return static_cast<float*>(block.pointers[1]);
}

TEST(VerifyKernel, FindsAWrongElement) {
  const auto check = with_mistake([](const auto& block) { output_of(block)[43] += 1e-3f; });
  EXPECT_FALSE(check.ok);
  EXPECT_THAT(check.message, HasSubstr("element 43 of output 0 ("));
  EXPECT_THAT(check.message, HasSubstr("expected"));
}

TEST(VerifyKernel, FindsAnElementThatIsNotWritten) {
  for (std::int64_t work : {std::int64_t{1} << 20, std::int64_t{10}}) {
    const auto check = with_mistake(
        [](const auto& block) {
          const std::uint32_t before = 0xFFFFFFFF;
          std::memcpy(output_of(block) + 1234, &before, 4);
        },
        {.complete_work = work});
    EXPECT_FALSE(check.ok);
    EXPECT_THAT(check.message, HasSubstr("does not write element 1234 of output 0"));
  }
}

TEST(VerifyKernel, FindsANaNThatShouldNotBeAndOneThatShould) {
  EXPECT_FALSE(with_mistake([](const auto& block) { output_of(block)[0] = NAN; }).ok);
  const auto check = with_mistake(
      [](const auto& block) {
        for (int i = 0; i < 64 * 40; ++i)
          if (std::isnan(output_of(block)[i]))
            output_of(block)[i] = 0;
      },
      {.special_values = true});
  EXPECT_FALSE(check.ok);
  EXPECT_THAT(check.message, HasSubstr("is 0, expected nan"));
}

TEST(VerifyKernel, FindsWritesOutOfBoundsAndIntoOperands) {
  auto behind = with_mistake([](const auto& block) { output_of(block)[64 * 40] = 1; });
  EXPECT_THAT(behind.message,
              HasSubstr("writes out of bounds: byte 10240 of output 0, which has 10240 bytes"));
  auto before =
      with_mistake([](const auto& block) { static_cast<float*>(block.pointers[0])[-1] = 1; });
  EXPECT_THAT(before.message, HasSubstr("writes out of bounds: byte -1 of operand 0"));
  auto operand =
      with_mistake([](const auto& block) { static_cast<float*>(block.pointers[0])[3] = 1; });
  EXPECT_THAT(operand.message, HasSubstr("changes operand 0"));
}

TEST(VerifyKernel, FindsAMistakeAtATileBoundaryOfALargeKernel) {
  const auto check = with_mistake(
      [](const auto& block) {
        for (int row = 0; row < 512; ++row)
          output_of(block)[row * 513 + 512] *= 1.01f; // the tail column
      },
      {.complete_work = 10, .tiles = {512, 16}}, {512, 513});
  EXPECT_FALSE(check.ok);
}

// A sum that several threads evaluate, with a tile of its depth left out.
TEST(VerifyKernel, FindsAMistakeInALongSum) {
  constexpr std::int64_t kDepth = 70000, kLeftOut = 4096;
  const auto kernel = kernel_of([](Graph& g) { return matmul(g, 3, 4, kDepth); });
  auto check = [&](bool mistake) {
    return verify_kernel(kernel.region, kernel.program,
                         [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
                           interpret(program, block);
                           const auto* a = static_cast<const float*>(block.pointers[0]);
                           const auto* b = static_cast<const float*>(block.pointers[1]);
                           for (std::int64_t k = mistake ? kDepth - kLeftOut : kDepth; k < kDepth;
                                ++k)
                             static_cast<float*>(block.pointers[2])[0] -= a[k] * b[4 * k];
                         },
                         {}, {.complete_work = 10});
  };
  EXPECT_TRUE(check(false).ok) << check(false).message;
  EXPECT_THAT(check(true).message, HasSubstr("element 0 of output 0"));
}

TEST(VerifyKernel, GivesEachProgramTheOperandsAsTheyWere) {
  const auto kernel = kernel_of([](Graph& g) { return chain(g, {64, 40}); });
  KernelChecker checker(kernel.region);
  for (const bool damaged : {false, true, false, false, true, false}) {
    const auto check =
        checker.check(kernel.program, [&](const auto& program, const kernel::ArgBlock& block) {
          interpret(program, block);
          if (damaged)
            static_cast<float*>(block.pointers[0])[7] += 1;
        });
    EXPECT_EQ(check.ok, !damaged) << check.message;
  }
}

TEST(VerifyKernel, FindsAnElementOfAnyWidthThatIsNotWritten) {
  for (const DType type : {DType::F16, DType::BF16, DType::F64}) {
    const auto kernel = kernel_of([&](Graph& g) {
      return g.cast(g.input("x", DType::F32, {3, 5000}), type);
    });
    const std::size_t size = size_of(type);
    for (const std::size_t element : {std::size_t{0}, std::size_t{4097}, std::size_t{14999}}) {
      const auto check = verify_kernel(
          kernel.region, kernel.program,
          [&](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
            interpret(program, block);
            std::memset(static_cast<char*>(block.pointers[1]) + element * size, 0xFF, size);
          },
          {}, {.complete_work = 10});
      EXPECT_THAT(check.message, HasSubstr("does not write element " + std::to_string(element)));
    }
  }
}

TEST(VerifyKernel, FindsAProgramOfAnotherRegion) {
  const auto one = kernel_of([](Graph& g) { return chain(g, {8}); });
  const auto other = kernel_of([](Graph& g) { return matmul(g, 2, 4, 4); });
  const auto check = verify_kernel(one.region, other.program, by_interpreter);
  EXPECT_THAT(check.message,
              HasSubstr("has 3 pointer and 0 scalar arguments, the region has 2 and 0"));
}

TEST(VerifyKernel, LetsOutputsStandInTheMemoryOfTheirAlias) {
  auto kernel = kernel_of([](Graph& g) { return chain(g, {50}); });
  ASSERT_TRUE(may_alias(kernel.region, 0, 0));
  kernel.region.outputs[0].alias = 0;
  const auto check =
      verify_kernel(kernel.region, kernel.program, by_interpreter, {}, {.share_aliases = true});
  EXPECT_TRUE(check.ok) << check.message;
}

// --- the evaluator

TEST(RegionEvaluator, AgreesWithTheGraphReference) {
  Graph g;
  g.outputs = {softmax(g, {3, 5})};
  const auto kernel = kernels_of(g).at(0);
  std::vector<double> values;
  for (int i = 0; i < 15; ++i)
    values.push_back(std::sin(i * 1.7) * 3);
  const HostArray x(DType::F32, {3, 5}, values);
  const auto want = expect(g, std::vector{x})[0];
  RegionEvaluator evaluator(kernel.region, {}, {&x});
  const Dims domain = evaluator.domain(0);
  EXPECT_EQ(element_count(domain), 15);
  for_each_point(domain, [&](const Dims& point, std::int64_t) {
    const auto offset = evaluator.offset_of(0, point);
    ASSERT_TRUE(offset);
    const Estimate got = evaluator.at(0, point);
    EXPECT_EQ(got.value.f, want.at(*offset).value.f);
    EXPECT_NEAR(got.error, want.at(*offset).error, 1e-12);
  });
}

// Long reductions, some of whose terms ask for results of others: by one thread and by several.
TEST(RegionEvaluator, GivesTheSameWithAnyNumberOfThreads) {
  const std::function<NodeId(Graph&)> graphs[] = {
      [](Graph& g) {
        return softmax(g, {64, 40000});
      },
      [](Graph& g) { return matmul(g, 2, 2, 70000); },
  };
  for (const auto& make : graphs) {
    const auto kernel = kernel_of(make);
    RandomNumbers random(7);
    std::vector<HostArray> operands;
    for (const kernel::Operand& operand : kernel.region.operands)
      operands.push_back(random_array(
          operand.dtype, element_count(Bindings{}.values_of(operand.shape)), 0, false, random));
    std::vector<const HostArray*> pointers;
    for (const HostArray& array : operands)
      pointers.push_back(&array);
    RegionEvaluator one(kernel.region, {}, pointers, 1), several(kernel.region, {}, pointers, 3);
    for (const std::int64_t column : {0, 1}) {
      const Estimate a = one.at(0, {1, column}), b = several.at(0, {1, column});
      EXPECT_EQ(a.value.f, b.value.f);
      EXPECT_EQ(a.error, b.error);
      EXPECT_GT(a.error, 0);
    }
  }
}

} // namespace
} // namespace egret

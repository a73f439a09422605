// Products for a vendor's library: which regions are some, and that what is described is what the
// region computes, by way of the interpreter.
#include "backend/cuda/target.h"
#include "backend/reference/kernel_check.h"
#include "backend/reference/program_interpreter.h"
#include "kernel/families.h"
#include "kernel/gpu_library.h"
#include "kernel/serialize.h"
#include "support/contraction_regions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace egret {
namespace {

using ir::Graph;
using ir::NodeId;
using kernel::LibraryProduct;
using testing::Einsum;
using ::testing::HasSubstr;
using testing::input;
using testing::sizes;
using Activation = LibraryProduct::Activation;

kernel::Target library_target(std::int64_t library) {
  kernel::Target target = backend::cuda::known_target(90);
  target.product_library = library;
  return target;
}

kernel::Region plain_region(const Einsum& e, DType dtype) {
  return testing::product_region(e, dtype, 64);
}

using Epilogue = std::function<NodeId(Graph&, NodeId, const Einsum&, DType)>;
/// What `epilogue` makes of the product.
kernel::Region with(const Epilogue& epilogue, DType dtype = DType::BF16) {
  const Einsum e = sizes("mk", "kn", "mn", 24, 40, 16);
  return testing::region_of(
      [&](Graph& g) {
        const NodeId product = testing::einsum(g, input(g, "a", e.left, e, dtype),
                                               input(g, "b", e.right, e, dtype), e);
        return std::vector{epilogue(g, product, e, dtype)};
      },
      64);
}

NodeId number(Graph& g, NodeId like, double value) {
  return g.broadcast(g.constant(g[like].dtype, value), g[like].shape);
}

NodeId biased(Graph& g, NodeId x, const Einsum& e, DType dtype) {
  const NodeId bias = g.input("bias", dtype, {e.extent('n')});
  return g.binary(Op::Add, x, g.broadcast(bias, g[x].shape));
}

NodeId relu(Graph& g, NodeId x) {
  const NodeId zero = number(g, x, 0);
  return g.add(Op::Select, std::vector{g.binary(Op::Lt, zero, x), x, zero});
}

NodeId gelu(Graph& g, NodeId x) {
  const auto mul = [&](NodeId a, NodeId b) { return g.binary(Op::Mul, a, b); };
  const NodeId cube = mul(mul(mul(x, x), x), number(g, x, 0.044715));
  const NodeId inner = mul(g.binary(Op::Add, x, cube), number(g, x, 0.7978845608));
  const NodeId wave = g.binary(Op::Add, g.unary(Op::Tanh, inner), number(g, x, 1));
  return mul(mul(x, number(g, x, 0.5)), wave);
}

/// Lowers, sends the program through bytes, and runs it against the region.
void check_library(const kernel::Region& region) {
  const kernel::Generator& generator = kernel::gpu_library_generator();
  const auto space = generator.space(region, library_target(1));
  ASSERT_FALSE(space.empty()) << kernel::find_product(region).reason << print(region);
  for (const kernel::Schedule& schedule : {space.front(), space.back()}) {
    EXPECT_EQ(kernel::parse_schedule(to_string(schedule)), schedule);
    const auto lowered = generator.lower(region, schedule, library_target(1));
    ASSERT_TRUE(lowered.ok) << lowered.reason;
    kernel::verify(lowered.program);
    const auto again = kernel::program_of_bytes(kernel::to_bytes(lowered.program));
    EXPECT_EQ(again.product, lowered.program.product);
    EXPECT_EQ(hash_of(again), hash_of(lowered.program));
    EXPECT_EQ(print(again), print(lowered.program));
    const auto result = backend::reference::verify_kernel(
        region, again, [](const kernel::KernelProgram& program, const kernel::ArgBlock& block) {
          backend::reference::interpret(program, block);
        });
    EXPECT_TRUE(result.ok) << result.message << print(again);
    EXPECT_TRUE(result.complete);
  }
  EXPECT_NE(hash_of(generator.lower(region, space[0], library_target(1)).program),
            hash_of(generator.lower(region, space[1], library_target(1)).program));
}

TEST(LibraryProducts, EveryLayoutAndType) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (const auto& [left, right] :
         {std::pair{"mk", "kn"}, {"mk", "nk"}, {"km", "kn"}, {"km", "nk"}})
      check_library(plain_region(sizes(left, right, "mn", 24, 40, 16), dtype));
}

TEST(LibraryProducts, BatchesAndOneRow) {
  check_library(plain_region(sizes("bmk", "bkn", "bmn", 8, 16, 12, 3), DType::BF16));
  check_library(plain_region(sizes("bkm", "bnk", "bmn", 8, 16, 12, 3), DType::F32));
  check_library(
      plain_region(sizes("mbk", "bkn", "bmn", 8, 16, 12, 3), DType::BF16)); // heads side by side
  check_library(plain_region(sizes("k", "kn", "n", 1, 40, 16), DType::F32));
  check_library(plain_region(sizes("k", "nk", "n", 1, 40, 16), DType::BF16));
}

TEST(LibraryProducts, BiasAndActivation) {
  struct Case {
    Epilogue epilogue;
    bool bias;
    Activation activation;
  };
  const Case cases[] = {
      {biased, true, Activation::None},
      {[](Graph& g, NodeId x, const Einsum&, DType) { return relu(g, x); }, false,
       Activation::Relu},
      {[](Graph& g, NodeId x, const Einsum&, DType) {
         return g.binary(Op::Max, x, number(g, x, 0));
       },
       false, Activation::Relu},
      {[](Graph& g, NodeId x, const Einsum& e, DType d) { return relu(g, biased(g, x, e, d)); },
       true, Activation::Relu},
      {[](Graph& g, NodeId x, const Einsum& e, DType d) { return gelu(g, biased(g, x, e, d)); },
       true, Activation::Gelu},
      {[](Graph& g, NodeId x, const Einsum&, DType) { return gelu(g, x); }, false,
       Activation::Gelu},
  };
  for (const Case& c : cases)
    for (const DType dtype : {DType::BF16, DType::F32}) {
      const kernel::Region region = with(c.epilogue, dtype);
      const auto found = kernel::find_product(region);
      ASSERT_TRUE(found.ok) << found.reason << print(region);
      EXPECT_EQ(found.product.bias >= 0, c.bias);
      EXPECT_EQ(found.product.activation, c.activation);
      check_library(region);
    }
}

TEST(LibraryProducts, WhatTheLibraryDoesNotHaveIsRefused) {
  const auto reason = [](const kernel::Region& region) {
    const auto found = kernel::find_product(region);
    EXPECT_FALSE(found.ok) << print(region);
    EXPECT_TRUE(kernel::gpu_library_generator().space(region, library_target(1)).empty());
    return found.reason;
  };
  const auto unary = [](Op op) {
    return with([op](Graph& g, NodeId x, const Einsum&, DType) { return g.unary(op, x); });
  };
  EXPECT_THAT(reason(unary(Op::Tanh)), HasSubstr("does not have what becomes of the sum"));
  EXPECT_THAT(reason(unary(Op::Sin)), HasSubstr("does not have what becomes of the sum"));
  // gelu by erf differs by less than bf16 can tell, and is another function all the same.
  EXPECT_THAT(reason(with([](Graph& g, NodeId x, const Einsum&, DType) {
                const NodeId wave = g.binary(
                    Op::Add, g.unary(Op::Erf, g.binary(Op::Mul, x, number(g, x, 0.70710678))),
                    number(g, x, 1));
                return g.binary(Op::Mul, g.binary(Op::Mul, x, number(g, x, 0.5)), wave);
              })),
              HasSubstr("does not have what becomes of the sum"));
  EXPECT_THAT(reason(with([](Graph& g, NodeId x, const Einsum&, DType) {
                return g.binary(Op::Mul, x, number(g, x, 2));
              })),
              HasSubstr("does not have what becomes of the sum"));
  EXPECT_THAT(reason(with([](Graph& g, NodeId x, const Einsum&, DType d) {
                return g.binary(Op::Add, x, g.input("rest", d, g[x].shape));
              })),
              HasSubstr("more than a bias of the columns"));
  EXPECT_THAT(reason(with([](Graph& g, NodeId x, const Einsum& e, DType d) {
                const NodeId rows = g.input("rows", d, {e.extent('m'), 1});
                return g.binary(Op::Add, x, g.expand(rows, g[x].shape));
              })),
              HasSubstr("more than a bias of the columns"));
  EXPECT_THAT(reason(plain_region(sizes("mk", "kn", "mn", 24, 40, 16), DType::F64)),
              HasSubstr("not summed in f32"));
  EXPECT_THAT(reason(plain_region(sizes("mk", "kn", "mn", 24, 40, 16), DType::I32)),
              HasSubstr("not summed in f32"));
  EXPECT_THAT(
      reason(plain_region(sizes("mk", "kn", "mn", Expr::symbol("M", 1, 64), 40, 16), DType::F32)),
      HasSubstr("not known before it runs"));
}

TEST(LibraryProducts, AreNeverGreedyAndOnlyMadeWhereThereIsALibrary) {
  const kernel::Region region = plain_region(sizes("mk", "kn", "mn", 64, 64, 64), DType::BF16);
  const kernel::Generator& generator = kernel::gpu_library_generator();
  EXPECT_NE(kernel::lower_greedily(region, library_target(130000)).schedule.generator,
            generator.name());
  EXPECT_TRUE(generator.space(region, library_target(0)).empty());
  const kernel::Schedule schedule = kernel::parse_schedule("cublaslt way=1");
  EXPECT_THAT(generator.lower(region, schedule, library_target(0)).reason, HasSubstr("not there"));
  EXPECT_TRUE(generator.lower(region, schedule, library_target(130000)).ok);
  for (const char* bad : {"cublaslt way=-1", "cublaslt way=1000", "cublaslt ways=1"})
    EXPECT_FALSE(generator.lower(region, kernel::parse_schedule(bad), library_target(1)).ok) << bad;
}

TEST(LibraryProducts, ThatLeaveTheirBuffersDoNotVerify) {
  const kernel::Region region = plain_region(sizes("mk", "kn", "mn", 24, 40, 16), DType::BF16);
  const auto lowered = kernel::gpu_library_generator().lower(
      region, kernel::parse_schedule("cublaslt way=0"), library_target(1));
  ASSERT_TRUE(lowered.ok) << lowered.reason;
  const std::function<void(LibraryProduct&)> faults[] = {
      [](LibraryProduct& p) { p.rows += 1; },
      [](LibraryProduct& p) { p.depth += 1; },
      [](LibraryProduct& p) { p.left.offset = 1; },
      [](LibraryProduct& p) { p.left.offset = -1; },
      [](LibraryProduct& p) {
        p.batches = std::int64_t{1} << 62;
        p.right.batch = 1 << 20;
      },
      [](LibraryProduct& p) { p.result.buffer = p.left.buffer; },
      [](LibraryProduct& p) { p.right.buffer = 17; },
      [](LibraryProduct& p) { p.bias = p.result.buffer; },
      [](LibraryProduct& p) { p.workspace = 0; },
      [](LibraryProduct& p) { p.rank = -1; },
  };
  for (std::size_t i = 0; i < std::size(faults); ++i) {
    kernel::KernelProgram program = lowered.program;
    faults[i](*program.product);
    EXPECT_THROW(kernel::verify(program), InternalError) << i;
  }
}

} // namespace
} // namespace egret

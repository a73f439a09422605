// Kernel programs and regions as bytes.
#include "kernel/serialize.h"

#include "backend/cuda/target.h"
#include "egret/error.h"
#include "kernel/generator.h"
#include "support/random_graph.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

namespace egret::kernel {
namespace {

std::vector<Target> targets() {
  auto all = egret::testing::test_targets();
  all.resize(1);
  all.push_back(backend::cuda::known_target(90));
  return all;
}

TEST(Serialize, RegionsAndProgramsOfRandomGraphsReadBack) {
  int programs = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const ir::Graph graph =
        egret::testing::random_graph(seed, {.ops = 12, .symbolic = seed % 2 == 0});
    const auto inputs = egret::testing::random_inputs(graph, seed);
    for (const auto& c : egret::testing::region_cases(graph, inputs)) {
      const std::string region = to_bytes(c.region);
      const Region again = region_of_bytes(region);
      EXPECT_EQ(hash_of(again), hash_of(c.region));
      EXPECT_EQ(print(again), print(c.region));
      EXPECT_EQ(to_bytes(again), region);
      for (const Target& target : targets()) {
        const KernelProgram program = lower_greedily(c.region, target).program;
        const std::string bytes = to_bytes(program);
        const KernelProgram read = program_of_bytes(bytes);
        EXPECT_EQ(hash_of(read), hash_of(program));
        EXPECT_EQ(print(read), print(program));
        EXPECT_EQ(to_bytes(read), bytes);
        verify(read);
        ++programs;
      }
    }
  }
  EXPECT_GT(programs, 50);
}

std::string small_program() {
  ir::Graph g;
  const ir::NodeId x = g.input("x", DType::F32, {Expr(8)});
  g.outputs = {g.binary(Op::Add, x, x)};
  const auto inputs = egret::testing::random_inputs(g, 1);
  const auto cases = egret::testing::region_cases(g, inputs);
  return to_bytes(lower_greedily(cases.at(0).region, targets()[0]).program);
}

bool refused(const std::string& bytes) {
  try {
    program_of_bytes(bytes);
  } catch (const Error& error) {
    return error.kind() == ErrorKind::File;
  }
  return false;
}

TEST(Serialize, BytesThatAreCutOrChangedAreRefused) {
  const std::string bytes = small_program();
  for (std::size_t cut = 0; cut < bytes.size(); cut += 7)
    EXPECT_TRUE(refused(bytes.substr(0, cut))) << cut;
  for (std::size_t at = 0; at < bytes.size(); at += 5) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_TRUE(refused(changed)) << at;
  }
  EXPECT_TRUE(refused(bytes + "x"));
  EXPECT_THROW(region_of_bytes(bytes), Error);
}

} // namespace
} // namespace egret::kernel

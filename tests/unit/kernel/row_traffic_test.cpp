// What the kernel of a wide softmax moves: each element is read once from memory and once more
// while its row is in the second-level cache, and written once.
#include "kernel/families.h"
#include "support/region_runner.h"

#include <gtest/gtest.h>

#include <map>

namespace egret {
namespace {

/// Elements that a program loads from and stores to its buffers, by name: sizes are constants.
class Traffic {
public:
  explicit Traffic(const kernel::KernelProgram& program) : program_(program) {
    walk(program.body, 1);
  }
  std::map<std::string, std::int64_t> loaded, stored;

private:
  void walk(const kernel::Block& block, std::int64_t times) {
    for (const kernel::Stmt& s : block) {
      const auto name = [&](const kernel::Address& at) {
        return program_.buffers.at(std::size_t(at.buffer)).name;
      };
      if (const auto* load = made_by<kernel::inst::Load>(s))
        loaded[name(load->from)] += times * get_if<kernel::Let>(s)->inst.type.lanes;
      else if (const auto* store = get_if<kernel::Store>(s))
        stored[name(store->to)] += times * program_.values.at(std::size_t(store->value)).lanes;
      std::int64_t turns = 1;
      if (const auto* loop = get_if<kernel::For>(s))
        turns =
            (loop->end.value() - loop->begin.value() + loop->step.value() - 1) / loop->step.value();
      each_block(s, [&](const kernel::Block& inner) { walk(inner, times * turns); });
    }
  }

  const kernel::KernelProgram& program_;
};

TEST(RowTraffic, OfAWideSoftmaxIsOneReadAndOneWriteOfMemory) {
  constexpr std::int64_t kRows = 4096, kColumns = 32768;
  ir::Graph g;
  const Shape box{kRows, kColumns}, one{kRows, 1};
  const ir::NodeId x = g.input("x", DType::F32, box);
  const ir::NodeId top = g.expand(g.reshape(g.reduce(Op::ReduceMax, x, {1}), one), box);
  const ir::NodeId minus = g.broadcast(g.constant(DType::F32, -1.0), box);
  const ir::NodeId e = g.unary(Op::Exp, g.binary(Op::Add, x, g.binary(Op::Mul, top, minus)));
  g.outputs = {
      g.binary(Op::Div, e, g.expand(g.reshape(g.reduce(Op::ReduceSum, e, {1}), one), box))};
  const kernel::Target target = testing::test_targets()[0];
  const auto regions = testing::regions_of(g, target);
  ASSERT_EQ(regions.size(), 1u);
  const kernel::Chosen chosen = kernel::lower_greedily(regions[0], target);
  EXPECT_EQ(chosen.schedule.generator, "rows");
  const Traffic traffic(chosen.program);
  std::int64_t kept = 0;
  for (const auto& [name, elements] : traffic.loaded)
    kept += name.starts_with("stage") ? elements : 0;
  // The second read of a row, and what is kept of it, find room in half of the cache.
  EXPECT_LE(2 * kColumns * 4, target.l2_bytes / 2);
  EXPECT_EQ(traffic.loaded.at(regions[0].operands[0].name), 2 * kRows * kColumns);
  EXPECT_EQ(kept, kRows * kColumns);
  EXPECT_EQ(traffic.stored.at("out0"), kRows * kColumns);
}

} // namespace
} // namespace egret

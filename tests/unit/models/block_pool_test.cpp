// The blocks of the paged cache: who has them, what they hold, and when they are shared, copied,
// freed and evicted.
#include "models/language/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

namespace egret::models::language {
namespace {

using Block = BlockPool::Block;

/// A pool with a memory of one token a row, which sequences write to and read from.
struct Memory {
  explicit Memory(std::int64_t blocks, std::int64_t positions = 4)
      : pool(std::make_shared<BlockPool>(blocks, positions)),
        rows(static_cast<std::size_t>(blocks * positions), -1) {}

  std::shared_ptr<BlockPool> pool;
  std::vector<int> rows;

  bool reserve(BlockSequence& sequence, std::size_t count) {
    return sequence.reserve(count, [&](Block from, Block to) {
      ASSERT_NE(from, to);
      const std::int64_t n = pool->positions();
      std::copy_n(rows.begin() + from * n, n, rows.begin() + to * n);
    });
  }
  bool write(BlockSequence& sequence, const std::vector<int>& tokens) {
    if (!reserve(sequence, tokens.size()))
      return false;
    for (std::size_t i = 0; i < tokens.size(); ++i)
      rows.at(static_cast<std::size_t>(sequence.row(sequence.size() + i))) = tokens[i];
    sequence.append(tokens);
    return true;
  }
  std::vector<int> read(const BlockSequence& sequence) const {
    std::vector<int> tokens;
    for (std::size_t i = 0; i < sequence.size(); ++i)
      tokens.push_back(rows.at(static_cast<std::size_t>(sequence.row(i))));
    return tokens;
  }
};

std::vector<int> counted(int from, int count) {
  std::vector<int> tokens(static_cast<std::size_t>(count));
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

TEST(BlockPool, HandsBlocksOutAsSequencesGrow) {
  Memory m(4);
  BlockSequence a(m.pool);
  EXPECT_EQ(m.pool->available(), 4);
  EXPECT_TRUE(m.write(a, counted(0, 4)));
  EXPECT_EQ(m.pool->available(), 3);
  EXPECT_EQ(a.needed(1), 1);
  EXPECT_TRUE(m.write(a, {4}));
  EXPECT_EQ(a.needed(3), 0);
  EXPECT_EQ(a.needed(4), 1);
  EXPECT_EQ(m.pool->available(), 2);
  EXPECT_FALSE(m.write(a, counted(5, 12))) << "a block too many";
  EXPECT_EQ(m.pool->available(), 2) << "nothing has changed";
  EXPECT_TRUE(m.write(a, counted(5, 11)));
  EXPECT_EQ(m.read(a), counted(0, 16));
  a.keep(5);
  EXPECT_EQ(m.pool->available(), 2);
  EXPECT_EQ(a.tokens(), counted(0, 5));
  a = BlockSequence(m.pool);
  EXPECT_EQ(m.pool->available(), 4);
  EXPECT_EQ(m.pool->shared(), 0);
}

TEST(BlockPool, EqualBeginningsShareBlocks) {
  Memory m(8);
  BlockSequence a(m.pool), b(m.pool);
  ASSERT_TRUE(m.write(a, counted(0, 11)));
  b.share(counted(0, 8));
  EXPECT_EQ(b.tokens(), counted(0, 8));
  EXPECT_EQ(m.pool->shared(), 2);
  EXPECT_EQ(m.pool->available(), 5) << "no block for what is there";
  ASSERT_TRUE(m.write(b, {100, 101}));
  EXPECT_EQ(m.pool->copied(), 0U) << "it goes on behind whole blocks";
  EXPECT_EQ(m.read(a), counted(0, 11));
  a = BlockSequence(m.pool);
  EXPECT_EQ(m.pool->shared(), 0);
  EXPECT_EQ(m.pool->cached(), 1) << "the first sequence's third block";
  EXPECT_EQ(m.pool->available(), 5);
  BlockSequence c(m.pool);
  c.share(counted(0, 20));
  EXPECT_EQ(c.tokens(), counted(0, 11)) << "what nobody has any longer is found too";
  c.share(std::vector<int>{7, 8, 9});
  EXPECT_EQ(c.size(), 0U) << "of another text it has nothing";
}

TEST(BlockPool, ABlockIsCopiedBeforeItIsWrittenOtherwise) {
  Memory m(8);
  BlockSequence a(m.pool), b(m.pool), c(m.pool);
  ASSERT_TRUE(m.write(a, counted(0, 7)));
  b.share(counted(0, 6));
  c.share(counted(0, 7));
  EXPECT_EQ(m.pool->shared(), 2);
  EXPECT_EQ(b.needed(1), 1) << "of the copy";
  ASSERT_TRUE(m.write(b, {60}));
  EXPECT_EQ(m.pool->copied(), 1U);
  // Two at the same end: the first one that reserves the next position writes there.
  ASSERT_TRUE(m.reserve(c, 1));
  EXPECT_EQ(m.pool->copied(), 2U) << "the writer of the block is the first sequence";
  ASSERT_TRUE(m.write(a, {70}));
  ASSERT_TRUE(m.write(c, {71}));
  EXPECT_EQ(m.pool->copied(), 2U);
  EXPECT_EQ(m.read(a), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 70}));
  EXPECT_EQ(m.read(b), (std::vector<int>{0, 1, 2, 3, 4, 5, 60}));
  EXPECT_EQ(m.read(c), (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 71}));
}

TEST(BlockPool, WithoutAFreeBlockTheOnlyHolderWritesOverOldTokens) {
  Memory m(2);
  BlockSequence a(m.pool);
  ASSERT_TRUE(m.write(a, counted(0, 8)));
  a = BlockSequence(m.pool);
  a.share(counted(0, 6));
  EXPECT_EQ(m.pool->available(), 0);
  ASSERT_TRUE(m.write(a, {60, 70}));
  EXPECT_EQ(m.pool->copied(), 0U);
  EXPECT_EQ(m.read(a), (std::vector<int>{0, 1, 2, 3, 4, 5, 60, 70}));
  EXPECT_FALSE(m.write(a, {80}));
}

TEST(BlockPool, ThoseGivenBackFirstAreEvictedFirstAndLeavesBeforeTheirParents) {
  Memory m(5);
  BlockSequence a(m.pool), b(m.pool);
  ASSERT_TRUE(m.write(a, counted(0, 12)) && m.write(b, counted(50, 8)));
  a = BlockSequence(m.pool);
  b = BlockSequence(m.pool);
  EXPECT_EQ(m.pool->cached(), 5);
  BlockSequence c(m.pool);
  ASSERT_TRUE(m.write(c, counted(90, 8)));
  EXPECT_EQ(m.pool->evicted(), 2U);
  a.share(counted(0, 12));
  EXPECT_EQ(a.tokens(), counted(0, 4)) << "its last two blocks were taken";
  b.share(counted(50, 8));
  EXPECT_EQ(b.tokens(), counted(50, 8));
}

/// Sequences of few different tokens, so that they often begin alike, in few blocks.
TEST(BlockPool, RandomSequencesAlwaysReadWhatTheyWrote) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Memory m(3 + below(20), 1 + below(6));
    std::map<int, BlockSequence> all;
    for (int step = 0; step < 2000; ++step) {
      const int number = below(5);
      auto at = all.find(number);
      if (at == all.end()) {
        at = all.emplace(number, BlockSequence(m.pool)).first;
        std::vector<int> text;
        for (int i = below(30); i > 0; --i)
          text.push_back(below(8) == 0);
        at->second.share(text);
        ASSERT_TRUE(
            std::equal(at->second.tokens().begin(), at->second.tokens().end(), text.begin()));
      }
      BlockSequence& one = at->second;
      const int what = below(20);
      if (what == 0) {
        all.erase(at);
      } else if (what < 3) {
        one.keep(static_cast<std::size_t>(below(static_cast<int>(one.size()) + 1)));
      } else if (what < 6) { // reserved now, written later or never
        (void)m.reserve(one, static_cast<std::size_t>(1 + below(5)));
      } else {
        std::vector<int> tokens;
        for (int i = 1 + below(5); i > 0; --i)
          tokens.push_back(below(8) == 0);
        const std::int64_t needed = one.needed(tokens.size()), free = m.pool->available();
        ASSERT_EQ(m.write(one, tokens), needed <= free);
      }
      std::map<Block, int> references;
      for (const auto& [other, sequence] : all) {
        ASSERT_EQ(m.read(sequence), sequence.tokens()) << seed << " " << step;
        for (const Block block : sequence.blocks())
          ++references[block];
      }
      ASSERT_EQ(m.pool->size() - m.pool->available(), std::ssize(references));
      ASSERT_EQ(m.pool->shared(),
                std::ranges::count_if(references, [](const auto& r) { return r.second > 1; }));
    }
    all.clear();
    EXPECT_EQ(m.pool->available(), m.pool->size());
    EXPECT_EQ(m.pool->shared(), 0);
  }
}

} // namespace
} // namespace egret::models::language

// The paged cache under a language model: texts share blocks, wait for them and give them back, and
// their tokens are those that a text alone gets.
#include "egret/counters.h"
#include "egret/language_model.h"
#include "models/language/cached_model.h"
#include "support/files.h"
#include "support/language_models.h"
#include "support/memory_shortage.h"

#include <gtest/gtest.h>

#include <map>

namespace egret::models {
namespace {

constexpr std::int64_t kBlock = language::CacheSizes::kBlock;
constexpr std::int64_t kBlockBytes = 2 * 2 * 4 * 8 * kBlock; ///< layers, keys and values, heads ...

class PagedCache : public ::testing::Test {
protected:
  void SetUp() override {
    nlohmann::json config = golden_["config"];
    config["max_position_embeddings"] = 4096;
    test::write_language_folder(folder_.path(), config, test::language_tensors(golden_));
  }
  /// With room for so many blocks of f32.
  LanguageModel load(std::int64_t blocks, std::int64_t sequences,
                     std::optional<DType> dtype = {}) const {
    const std::int64_t element = dtype == DType::I8 ? 1 : dtype ? 2 : 4;
    const std::int64_t scales = dtype == DType::I8 ? 4 * kBlockBytes / 8 : 0;
    return LanguageModel::load(folder_.path(),
                               {.cache = dtype,
                                .context = 512,
                                .sequences = sequences,
                                .cache_bytes = blocks * (element * kBlockBytes + scales),
                                .chunk = 64});
  }
  /// A text of so many tokens that begins with `first`.
  static std::vector<int> text(int count, int first = 7) {
    std::vector<int> tokens = {first};
    while (std::ssize(tokens) < count)
      tokens.push_back(3 + (tokens.back() * 7 + static_cast<int>(tokens.size())) % 60);
    return tokens;
  }
  static GenerateOptions writes(std::int64_t count) {
    return {.max_new = count, .stop = std::vector<int>{}};
  }
  /// What a model with enough blocks writes behind a prompt.
  std::vector<int> alone(const std::vector<int>& prompt, std::int64_t count) const {
    LanguageModel model = load(16, 1);
    return model.generate(prompt, writes(count)).tokens;
  }

  using Id = GenerationBatch::Id;
  struct Written {
    std::map<Id, std::vector<int>> tokens;
    std::map<Id, StopReason> reasons;
    std::map<Id, std::size_t> reused;
    CacheBlocks most; ///< of each number, the largest that came
  };
  static Written run(LanguageModel& model, GenerationBatch& batch) {
    Written all;
    while (batch.running() + batch.waiting() > 0) {
      for (const auto& event : batch.step()) {
        EXPECT_EQ(event.error, "");
        if (event.token)
          all.tokens[event.id].push_back(*event.token);
        if (event.ends)
          all.reasons[event.id] = *event.ends;
        all.reused[event.id] = event.reused;
      }
      const CacheBlocks now = model.cache_blocks();
      all.most.used = std::max(all.most.used, now.used);
      all.most.shared = std::max(all.most.shared, now.shared);
      EXPECT_LE(now.used + now.cached, now.all);
      EXPECT_LE(now.shared, now.used);
    }
    return all;
  }

  const nlohmann::json& golden_ = test::golden_language("llama");
  test::TempFolder folder_;
};

TEST_F(PagedCache, BlocksFollowFromTheBudgetOrTheContext) {
  LanguageModel model = load(5, 3);
  EXPECT_EQ(model.cache_blocks().all, 5);
  EXPECT_EQ(model.cache_blocks().positions, kBlock);
  EXPECT_EQ(model.cache_bytes(), 5 * 4 * kBlockBytes);
  LanguageModel whole = LanguageModel::load(folder_.path(), {.context = 100, .sequences = 3});
  EXPECT_EQ(whole.cache_blocks().all, 3 * 4);
  EXPECT_EQ(whole.cache_blocks().used, 0);
  EXPECT_NE(
      test::error_of(ErrorKind::Memory,
                     [&] { (void)LanguageModel::load(folder_.path(), {.cache_bytes = 1000}); })
          .find("a block of 32 positions in f32 needs 16384"),
      std::string::npos);
  EXPECT_NE(test::error_of(ErrorKind::Value,
                           [&] { (void)LanguageModel::load(folder_.path(), {.cache_bytes = -1}); })
                .find("-1 bytes"),
            std::string::npos);
}

TEST_F(PagedCache, EqualBeginningsAreSharedWithoutCopies) {
  LanguageModel model = load(16, 4);
  GenerationBatch batch(model);
  std::map<Id, std::vector<int>> expected;
  for (int i = 0; i < 4; ++i) { // two whole blocks in common
    std::vector<int> prompt = text(2 * kBlock);
    prompt.push_back(10 + i);
    expected[batch.add(prompt, writes(12))] = alone(prompt, 12);
  }
  const Written all = run(model, batch);
  EXPECT_EQ(all.tokens, expected);
  EXPECT_EQ(all.most.shared, 2);
  EXPECT_EQ(all.most.used, 2 + 4);
  EXPECT_EQ(model.cache_blocks().copied, 0U);
  for (const auto& [id, reused] : all.reused)
    EXPECT_EQ(reused, id == expected.begin()->first ? 0U : 2U * kBlock);
  EXPECT_EQ(model.cache_blocks().used, 0);
  EXPECT_EQ(model.cache_blocks().cached, 2 + 4);
}

TEST_F(PagedCache, APartOfABlockIsCopiedOnWriteInEveryDtype) {
  for (const auto dtype :
       {std::optional<DType>{}, std::optional(DType::BF16), std::optional(DType::I8)}) {
    LanguageModel model = load(16, 3, dtype), other = load(16, 1, dtype);
    GenerationBatch batch(model);
    std::map<Id, std::vector<int>> expected;
    for (int i = 0; i < 3; ++i) {
      std::vector<int> prompt = text(kBlock + 20);
      prompt.push_back(10 + i);
      expected[batch.add(prompt, writes(8))] = other.generate(prompt, writes(8)).tokens;
    }
    const Written all = run(model, batch);
    EXPECT_EQ(all.tokens, expected) << name_of(dtype.value_or(DType::F32));
    EXPECT_EQ(model.cache_blocks().copied, 2U) << "of the second and the third text";
    EXPECT_EQ(all.reused.rbegin()->second, kBlock + 20U);
  }
}

TEST_F(PagedCache, TextsWaitForBlocksAndGiveThemBack) {
  LanguageModel model = load(6, 8); // two texts of three blocks
  GenerationBatch batch(model);
  std::map<Id, std::vector<int>> expected;
  for (int i = 0; i < 5; ++i) {
    const std::vector<int> prompt = text(2 * kBlock + 5, 20 + i);
    expected[batch.add(prompt, writes(10))] = alone(prompt, 10);
  }
  (void)batch.step();
  EXPECT_EQ(batch.running(), 2U) << "there are blocks for two, and sequences for more";
  EXPECT_EQ(batch.waiting(), 3U);
  const Written all = run(model, batch);
  EXPECT_EQ(all.tokens.size(), 5U);
  for (const auto& [id, tokens] : expected)
    EXPECT_EQ(all.tokens.at(id), tokens);
  EXPECT_EQ(batch.preempted(), 0U);
  EXPECT_EQ(model.cache_blocks().used, 0);
}

TEST_F(PagedCache, ATextThatCameLaterGivesWayAndIsReadAgain) {
  LanguageModel model = load(5, 3); // each text grows from one block to three
  GenerationBatch batch(model);
  std::map<Id, std::vector<int>> expected;
  for (int i = 0; i < 3; ++i) {
    const std::vector<int> prompt = text(20, 30 + i);
    expected[batch.add(prompt, writes(60))] = alone(prompt, 60);
  }
  const Written all = run(model, batch);
  EXPECT_GT(batch.preempted(), 0U);
  EXPECT_EQ(all.tokens, expected);
  for (const auto& [id, reason] : all.reasons)
    EXPECT_EQ(reason, StopReason::Length);
  EXPECT_LE(all.most.used, 5);
  EXPECT_EQ(model.cache_blocks().used, 0);
}

TEST_F(PagedCache, ManyTextsLeaveNoBlockBehind) {
  LanguageModel model = load(7, 3);
  GenerationBatch batch(model);
  std::vector<Id> some;
  for (int i = 0; i < 60; ++i) {
    some.push_back(batch.add(text(1 + (i * 37) % 150, 3 + i % 5), writes(1 + i % 40)));
    for (int steps = i % 4; steps > 0; --steps)
      (void)batch.step();
    if (i % 7 == 0)
      batch.cancel(some[some.size() / 2]);
  }
  (void)run(model, batch);
  const CacheBlocks blocks = model.cache_blocks();
  EXPECT_EQ(blocks.used, 0);
  EXPECT_EQ(blocks.shared, 0);
  EXPECT_EQ(blocks.cached, blocks.all);
  EXPECT_GT(blocks.evicted, 0U);
  { // A batch that ends with texts under way gives back what they have.
    GenerationBatch other(model);
    (void)other.add(text(100), writes(50));
    (void)other.step();
    EXPECT_GT(model.cache_blocks().used, 0);
  }
  EXPECT_EQ(model.cache_blocks().used, 0);
  EXPECT_EQ(model.generate(text(40), writes(20)).tokens, alone(text(40), 20));
}

TEST_F(PagedCache, WhatDoesNotFitIsRefusedOrEndsWithTheCache) {
  LanguageModel model = load(3, 2);
  GenerationBatch batch(model);
  const std::vector<int> prompt = text(3 * kBlock + 1);
  const char* said = "generate: 97 tokens need 4 blocks of 32 positions, the cache has 3, of which "
                     "3 are free";
  EXPECT_EQ(test::error_of(ErrorKind::Memory, [&] { (void)batch.add(prompt); }), said);
  EXPECT_EQ(test::error_of(ErrorKind::Memory, [&] { (void)model.generate(prompt); }), said);
  // One that fits writes until the blocks are full.
  const Generated text_alone = model.generate(text(90), writes(100));
  EXPECT_EQ(text_alone.reason, StopReason::Context);
  EXPECT_EQ(text_alone.tokens, alone(text(90), 7)); // the last token needs no room
  GenerateOptions guessing = writes(100);
  guessing.lookup = 20;
  EXPECT_EQ(model.generate(text(90), guessing).tokens, text_alone.tokens);
  const Id id = batch.add(text(90, 9), writes(100)), later = batch.add(text(40, 8), writes(2));
  const Written all = run(model, batch);
  EXPECT_EQ(all.reasons.at(id), StopReason::Context);
  EXPECT_EQ(all.tokens.at(id), alone(text(90, 9), 7));
  EXPECT_EQ(all.tokens.at(later), alone(text(40, 8), 2));
}

TEST_F(PagedCache, OtherBlocksNeedNoOtherTrace) {
  LanguageModel model = load(16, 2);
  const auto texts = [&](int first) {
    GenerationBatch batch(model);
    (void)batch.add(text(30, first), writes(40));
    (void)batch.add(text(50, first + 1), writes(40));
    (void)run(model, batch);
  };
  texts(10);
  const Counters before = counters();
  for (int first = 20; first < 40; first += 4)
    texts(first);
  EXPECT_EQ((counters() - before).graphs_traced, 0U);
}

/// A prompt whose chunk needs more memory than there is ends with an error and gives its blocks
/// back; a text that is written beside it goes on.
TEST_F(PagedCache, AReadThatFailsEndsItsTextAlone) {
  LanguageModel model =
      LanguageModel::load(folder_.path(), {.context = 4096, .sequences = 2, .chunk = 4096});
  GenerationBatch batch(model);
  const std::vector<int> prompt = text(20);
  const auto going = batch.add(prompt, writes(24));
  std::vector<int> tokens;
  const auto step = [&] {
    std::vector<GenerationBatch::Event> events = batch.step();
    for (const auto& event : events)
      if (event.id == going && event.token)
        tokens.push_back(*event.token);
    return events;
  };
  while (tokens.size() < 8)
    (void)step();
  std::string error;
  {
    test::MemoryShortage shortage;
    shortage.allow(std::uint64_t{1} << 20);
    const auto failing = batch.add(text(4000, 9), writes(4));
    while (error.empty() && batch.waiting() + batch.running() > 1)
      for (const auto& event : step())
        if (event.id == failing) {
          EXPECT_EQ(event.ends, StopReason::Caller);
          error = event.error;
        }
    EXPECT_NE(error.find("limit"), std::string::npos) << error;
    EXPECT_EQ(batch.running(), 1U);
    EXPECT_EQ(model.cache_blocks().used, 1);
  }
  while (batch.running() + batch.waiting() > 0)
    (void)step();
  EXPECT_EQ(tokens, alone(prompt, 24));
  EXPECT_EQ(model.cache_blocks().used, 0);
  // The prompt that failed can be read now.
  const auto again = batch.add(text(4000, 9), writes(2));
  const Written all = run(model, batch);
  EXPECT_EQ(all.reasons.at(again), StopReason::Length);
}

/// A run that fails ends the texts that it was for; one that waits is written later.
TEST_F(PagedCache, AWriteThatFailsEndsItsTextsAlone) {
  LanguageModel model = load(16, 2);
  GenerationBatch batch(model);
  const auto first = batch.add(text(20), writes(24)), second = batch.add(text(9, 8), writes(24));
  for (int i = 0; i < 4; ++i)
    (void)batch.step();
  const auto third = batch.add(text(12, 9), writes(8));
  std::vector<Id> ended;
  {
    const test::MemoryShortage shortage;
    for (const auto& event : batch.step()) {
      EXPECT_NE(event.error.find("limit"), std::string::npos) << event.error;
      EXPECT_EQ(event.ends, StopReason::Caller);
      ended.push_back(event.id);
    }
  }
  EXPECT_EQ(ended, (std::vector<Id>{first, second}));
  EXPECT_EQ(model.cache_blocks().used, 0);
  EXPECT_EQ(run(model, batch).tokens,
            (std::map<Id, std::vector<int>>{{third, alone(text(12, 9), 8)}}));
}

} // namespace
} // namespace egret::models

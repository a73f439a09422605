// The cache of keys and values: how much of it a token reads, other dtypes, and that a model says
// what it needs before it is read.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "egret/memory.h"
#include "models/language/cached_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class LanguageCache : public ::testing::Test {
protected:
  void SetUp() override {
    nlohmann::json config = golden_["config"];
    config["max_position_embeddings"] = 4096;
    test::write_language_folder(folder_.path(), config, test::language_tensors(golden_));
  }
  LanguageModel load(const LanguageModelOptions& options) const {
    return LanguageModel::load(folder_.path(), options);
  }

  const nlohmann::json& golden_ = test::golden_language("llama");
  const std::vector<int> prompt_ = golden_["prompt"].get<std::vector<int>>();
  const std::vector<int> greedy_ = golden_["greedy"].get<std::vector<int>>();
  test::TempFolder folder_;
};

TEST_F(LanguageCache, ATokenReadsLessThanEightTimesWhatIsUsed) {
  const language::CacheSizes sizes{.capacity = 4096};
  EXPECT_EQ(sizes.visible(1), 256);
  EXPECT_EQ(sizes.visible(256), 256);
  EXPECT_EQ(sizes.visible(257), 1024);
  EXPECT_EQ(sizes.visible(1025), 4096);
  for (std::int64_t capacity = 1; capacity < 9000; capacity += 37)
    for (std::int64_t used = 1; used <= capacity; used += 29) {
      const std::int64_t visible = language::CacheSizes{.capacity = capacity}.visible(used);
      EXPECT_GE(visible, used);
      EXPECT_LE(visible, capacity);
      EXPECT_LT(visible, std::max<std::int64_t>(8 * used, 513));
    }
}

TEST_F(LanguageCache, TextsGoOnWhereMoreBecomesVisible) {
  LanguageModel model = load({.context = 2048});
  std::vector<int> text = prompt_;
  while (text.size() < 240)
    text.insert(text.end(), greedy_.begin(), greedy_.end());
  text.resize(240);
  const auto none = std::vector<int>{};
  const std::vector<int> written = model.generate(text, {.max_new = 40, .stop = none}).tokens;
  LanguageModel small = load({.context = 511}); // one size for all
  EXPECT_EQ(written, small.generate(text, {.max_new = 40, .stop = none}).tokens);
  // A batch of a long and a short text, which see as much as the longer one needs.
  LanguageModel pair = load({.context = 2048, .sequences = 2});
  GenerationBatch batch(pair);
  batch.add(text, {.max_new = 40, .stop = none});
  const auto brief = batch.add(prompt_, {.max_new = 40, .stop = none});
  std::vector<int> of_brief;
  while (batch.running() + batch.waiting() > 0)
    for (const GenerationBatch::Event& event : batch.step())
      if (event.token && event.id == brief)
        of_brief.push_back(*event.token);
  EXPECT_EQ(of_brief, std::vector<int>(greedy_.begin(), greedy_.begin() + 40));
}

TEST_F(LanguageCache, OtherDtypesTakeLessAndStayClose) {
  const LanguageModel wide = load({.context = 128});
  EXPECT_EQ(wide.cache_bytes(), 2 * 2 * 4 * 128 * 8 * 4); // layers, keys and values, heads ...
  struct Case {
    DType dtype;
    std::int64_t bytes; ///< of a vector of a head, 8 numbers
    std::size_t alike;  ///< greedy tokens that are surely the same
  };
  for (const Case& one : {Case{DType::I8, 12, 8}, {DType::BF16, 16, 8}, {DType::F8E4M3, 8, 1}}) {
    LanguageModel model = load({.cache = one.dtype, .context = 128});
    EXPECT_EQ(model.cache_bytes(), 2 * 2 * 4 * 128 * one.bytes);
    const Generated text = model.generate(prompt_, {.max_new = 64, .stop = std::vector<int>{}});
    ASSERT_EQ(text.tokens.size(), 64U);
    EXPECT_TRUE(std::equal(greedy_.begin(),
                           greedy_.begin() + static_cast<std::ptrdiff_t>(one.alike),
                           text.tokens.begin()))
        << name_of(one.dtype);
    // What is copied from another sequence is what it held, with its scales.
    LanguageModel pair = load({.cache = one.dtype, .context = 128, .sequences = 2});
    GenerationBatch batch(pair);
    std::vector<int> longer = prompt_;
    longer.insert(longer.end(), greedy_.begin(), greedy_.begin() + 12);
    std::map<GenerationBatch::Id, std::vector<int>> texts;
    std::size_t reused = 0;
    for (int i = 0; i < 2; ++i)
      texts[batch.add(longer, {.max_new = 8, .stop = std::vector<int>{}})] = {};
    while (batch.running() + batch.waiting() > 0)
      for (const GenerationBatch::Event& event : batch.step()) {
        reused = std::max(reused, event.reused);
        if (event.token)
          texts[event.id].push_back(*event.token);
      }
    EXPECT_GE(reused, 16U);
    EXPECT_EQ(texts.begin()->second, texts.rbegin()->second) << name_of(one.dtype);
  }
}

TEST_F(LanguageCache, WhatIsNeededIsSaidBeforeWorkStarts) {
  const auto refused = [&](std::uint64_t limit, const LanguageModelOptions& options) {
    set_memory_limit("cpu", limit);
    const std::string message = test::error_of(ErrorKind::Memory, [&] { (void)load(options); });
    set_memory_limit("cpu", 0);
    EXPECT_NE(message.find(folder_.path().string()), std::string::npos) << message;
    return message;
  };
  const std::uint64_t used = memory_stats("cpu").in_use;
  const auto has = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
  };
  // 4096 positions take 2 MiB in f32, 768 KiB in i8, the weights about 90 KiB.
  std::string message = refused(used + (1 << 20), {.context = 4096});
  has(message, "a cache of 2.0 MiB (1 of 4096 positions in f32) are needed");
  has(message, "a cache in i8 would fit");
  message = refused(used + (1 << 19), {.cache = DType::I8, .context = 4096});
  has(message, "a context of 2048 would fit");
  has(refused(used + (1 << 13), {.context = 64}), "egret quantize");
  EXPECT_NO_THROW(load({.context = 4096}));
}

TEST_F(LanguageCache, IntegersAreNoWeights) {
  io::TensorMap tensors = test::language_tensors(golden_);
  const std::string name = "model.layers.0.mlp.up_proj.weight";
  tensors[name] = zeros(tensors.at(name).shape(), DType::I64);
  test::write_language_folder(folder_.path(), golden_["config"], tensors);
  const std::string message = test::error_of(ErrorKind::File, [&] { (void)load({}); });
  EXPECT_NE(message.find(name + "' is i64; a float is needed"), std::string::npos) << message;
  EXPECT_NE(test::error_of(ErrorKind::DType, [&] { (void)load({.cache = DType::I32}); })
                .find("a cache in i32"),
            std::string::npos);
}

} // namespace
} // namespace egret::models

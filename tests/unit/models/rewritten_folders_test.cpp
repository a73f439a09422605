// Folders that are written from others, quantized or merged with an adapter: one tensor is in
// memory at a time, and nothing is left behind by an error.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "egret/memory.h"
#include "support/files.h"
#include "support/language_models.h"

#include <functional>
#include <gtest/gtest.h>

namespace egret::models {
namespace {

class RewrittenFolders : public ::testing::Test {
protected:
  static constexpr int kLayers = 24;

  /// A model of so many layers that all of it is far more than a matrix.
  void SetUp() override {
    const nlohmann::json& golden = test::golden_language("llama");
    nlohmann::json config = golden["config"];
    config["num_hidden_layers"] = kLayers;
    const std::string first = "model.layers.0.";
    io::TensorMap tensors;
    for (const auto& [name, value] : test::language_tensors(golden))
      if (!name.starts_with("model.layers."))
        tensors.emplace(name, value);
      else if (name.starts_with(first))
        for (int i = 0; i < kLayers; ++i)
          tensors.emplace("model.layers." + std::to_string(i) + "." + name.substr(first.size()),
                          value);
    std::filesystem::create_directory(model_);
    test::write_language_folder(model_, config, tensors);
    for (const auto& [name, value] : tensors)
      bytes_ += static_cast<std::uint64_t>(value.numel()) * 4;
    // An adapter of two matrices.
    io::TensorMap low;
    for (const char* part : {"q_proj", "v_proj"}) {
      const std::string module = std::string("base_model.model.model.layers.5.self_attn.") + part;
      low.emplace(module + ".lora_A.weight", ones({2, 32}) * 0.1);
      low.emplace(module + ".lora_B.weight", ones({32, 2}) * 0.2);
    }
    std::filesystem::create_directory(adapter_);
    io::save_safetensors(adapter_ / "adapter_model.safetensors", low);
    test::write_json(
        adapter_ / "adapter_config.json",
        {{"peft_type", "LORA"}, {"task_type", "CAUSAL_LM"}, {"r", 2}, {"lora_alpha", 2}});
  }

  /// The most memory for tensors at a time while `run` runs.
  static std::uint64_t peak_of(const std::function<void()>& run) {
    const std::uint64_t before = memory_stats("cpu").in_use;
    reset_memory_peak("cpu");
    run();
    return memory_stats("cpu").peak - before;
  }

  test::TempFolder folder_;
  std::filesystem::path model_ = folder_ / "model", adapter_ = folder_ / "adapter",
                        out_ = folder_ / "out";
  std::uint64_t bytes_ = 0; ///< of the model
};

TEST_F(RewrittenFolders, OneTensorIsInMemoryAtATime) {
  for (const WeightForm form :
       {WeightForm::Int8, WeightForm::Int4, WeightForm::Uint4, WeightForm::F8E4M3}) {
    EXPECT_LT(peak_of([&] { quantize_language_model(model_, out_, {.form = form, .group = 8}); }),
              bytes_ / 4);
    (void)LanguageModel::load(out_);
    std::filesystem::remove_all(out_);
  }
  EXPECT_LT(peak_of([&] { merge_adapter(model_, adapter_, out_); }), bytes_ / 4);
  io::TensorMap before = io::load_safetensors(model_ / "model.safetensors"),
                after = io::load_safetensors(out_ / "model.safetensors");
  ASSERT_EQ(before.size(), after.size());
  for (const auto& [name, value] : before) {
    const bool changed = name == "model.layers.5.self_attn.q_proj.weight" ||
                         name == "model.layers.5.self_attn.v_proj.weight";
    const Tensor off = after.at(name) - value - (changed ? 0.04 : 0.0);
    EXPECT_LT(abs(off).max().item(), 1e-6) << name;
  }
}

TEST_F(RewrittenFolders, NothingIsLeftByAnError) {
  // Read only when the weights are written: a folder in place of a file.
  std::filesystem::create_directory(model_ / "tokenizer_config.json");
  test::write_file(model_ / "tokenizer.json", "{}");
  const auto refused = [&](const std::function<void()>& run) {
    EXPECT_NE(test::error_of(ErrorKind::File, run).find("tokenizer_config.json"),
              std::string::npos);
  };
  refused([&] { quantize_language_model(model_, out_, {.group = 8}); });
  EXPECT_FALSE(std::filesystem::exists(out_));
  std::filesystem::create_directory(out_); // was there, and stays
  refused([&] { merge_adapter(model_, adapter_, out_); });
  EXPECT_TRUE(std::filesystem::is_empty(out_));
}

} // namespace
} // namespace egret::models

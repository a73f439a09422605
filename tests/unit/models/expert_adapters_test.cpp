// Adapters of experts in both forms that PEFT has: a module for each expert, and parameters of one
// module.
#include "egret/functional.h"
#include "egret/language_model.h"
#include "support/files.h"
#include "support/language_models.h"

#include <gtest/gtest.h>

namespace egret::models {
namespace {

class ExpertAdapters : public ::testing::Test {
protected:
  static constexpr std::int64_t kRank = 3;

  void SetUp() override {
    const nlohmann::json& golden = test::golden_language("qwen3_moe");
    experts_ = golden["config"]["num_local_experts"].get<std::int64_t>();
    width_ = golden["config"]["hidden_size"].get<std::int64_t>();
    hidden_ = golden["config"]["moe_intermediate_size"].get<std::int64_t>();
    layers_ = golden["config"]["num_hidden_layers"].get<std::int64_t>();
    test::write_language_folder(folder_.path(), golden["config"], test::language_tensors(golden));
  }

  Tensor numbers(const Shape& shape) {
    std::vector<float> values;
    for (const double x : test::golden_numbers(test::count_of(shape), seed_++))
      values.push_back(static_cast<float>(0.3 * x));
    return tensor(values, shape);
  }

  void write(const io::TensorMap& tensors, const std::vector<std::string>& parameters = {}) {
    std::filesystem::create_directories(adapter_);
    io::save_safetensors(adapter_ / "adapter_model.safetensors", tensors);
    test::write_json(adapter_ / "adapter_config.json", {{"peft_type", "LORA"},
                                                        {"task_type", "CAUSAL_LM"},
                                                        {"r", kRank},
                                                        {"lora_alpha", 6},
                                                        {"target_parameters", parameters}});
  }
  std::vector<float> logits() {
    return LanguageModel::load(folder_.path(), {.adapter = adapter_})
        .logits(std::vector<int>{1, 9, 30, 12, 44, 8, 61, 17})
        .to_vector<float>();
  }

  /// The same updates in both forms.
  struct Forms {
    io::TensorMap each, together;
  };
  Forms forms(bool gate_up, bool down) {
    Forms forms;
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const std::string module =
          "base_model.model.model.layers." + std::to_string(layer) + ".mlp.experts";
      const auto add = [&](const std::string& at, std::vector<std::string> names, std::int64_t out,
                           std::int64_t in) {
        std::vector<Tensor> a, b;
        for (std::int64_t e = 0; e < experts_; ++e) {
          a.push_back(numbers({kRank, in}));
          b.push_back(numbers({out * std::ssize(names), kRank}));
          for (std::size_t i = 0; i < names.size(); ++i) {
            const std::string one = module + "." + std::to_string(e) + "." + names[i];
            forms.each.emplace(one + ".lora_A.weight", a.back());
            forms.each.emplace(one + ".lora_B.weight",
                               b.back().narrow(0, out * static_cast<std::int64_t>(i), out));
          }
        }
        forms.together.emplace(module + at + ".lora_A.weight", cat(a, 0));
        forms.together.emplace(module + at + ".lora_B.weight",
                               stack(b, -1).reshape({out * std::ssize(names), kRank * experts_}));
      };
      if (gate_up)
        add(down ? ".base_layer" : "", {"gate_proj", "up_proj"}, hidden_, width_);
      if (down)
        add("", {"down_proj"}, width_, hidden_);
    }
    return forms;
  }

  test::TempFolder folder_;
  std::filesystem::path adapter_ = folder_ / "adapter";
  std::int64_t experts_ = 0, width_ = 0, hidden_ = 0, layers_ = 0;
  std::uint64_t seed_ = 1;
};

TEST_F(ExpertAdapters, ParametersOfOneModuleAreModulesOfEachExpert) {
  const std::vector<float> plain = LanguageModel::load(folder_.path())
                                       .logits(std::vector<int>{1, 9, 30, 12, 44, 8, 61, 17})
                                       .to_vector<float>();
  for (const auto& [gate_up, down] : {std::pair(true, true), {true, false}, {false, true}}) {
    const Forms both = forms(gate_up, down);
    std::vector<std::string> parameters;
    if (gate_up)
      parameters.emplace_back("experts.gate_up_proj");
    if (down)
      parameters.emplace_back("model.layers.0.mlp.experts.down_proj");
    write(both.each);
    const std::vector<float> each = logits();
    write(both.together, parameters);
    EXPECT_EQ(logits(), each);
    EXPECT_NE(each, plain);
  }
}

TEST_F(ExpertAdapters, WhatDoesNotFitIsRefused) {
  const auto refused = [&](ErrorKind kind, const std::string& part) {
    const std::string said = test::error_of(kind, [&] { (void)logits(); });
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  const Forms both = forms(true, true);
  write(both.together, {"mlp.gate.weight"});
  refused(ErrorKind::Unsupported, "'target_parameters' has 'mlp.gate.weight'");
  write(both.together, {"experts.down_proj"});
  refused(ErrorKind::File, "experts.base_layer.lora_A.weight' is for a module");
  io::TensorMap all = both.together;
  all.insert(both.each.begin(), both.each.end());
  write(all, {"experts.gate_up_proj", "experts.down_proj"});
  refused(ErrorKind::File, "another form too");
  all = both.together;
  const std::string one = "base_model.model.model.layers.1.mlp.experts.lora_B.weight";
  all.at(one) = zeros({width_, kRank});
  write(all, {"experts.gate_up_proj", "experts.down_proj"});
  refused(ErrorKind::File, "'" + one + "' is [" + std::to_string(width_) + ",3]");
  all.erase(one);
  write(all, {"experts.gate_up_proj", "experts.down_proj"});
  refused(ErrorKind::File, "'" + one + "' is missing");
}

} // namespace
} // namespace egret::models

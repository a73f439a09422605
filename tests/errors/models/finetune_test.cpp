// What fine-tuning refuses: before work starts, with the file, the line and the thing named, and
// with nothing written.
#include "egret/finetune.h"
#include "egret/functional.h"
#include "egret/io.h"
#include "egret/language_model.h"
#include "support/finetuning.h"

#include <gtest/gtest.h>

namespace egret::finetune {
namespace {

class FinetuneErrors : public testing::Test {
protected:
  void SetUp() override { test::write_model_to_finetune(folder_ / "model", "llama"); }

  void expect(ErrorKind kind, const std::string& lines, std::initializer_list<const char*> parts,
              const Options& options = {.lora = Lora{}}) {
    test::write_file(folder_ / "data.jsonl", lines);
    const std::string message = test::error_of(
        kind, [&] { run(folder_ / "model", folder_ / "data.jsonl", folder_ / "out", options); });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
    EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  }

  const std::string good_ = test::small_conversations();
  test::TempFolder folder_;
};

TEST_F(FinetuneErrors, LinesAreNamed) {
  const auto line2 = [&](const std::string& line, const char* why,
                         ErrorKind kind = ErrorKind::File) {
    expect(kind, test::message_line("a", "b") + line + "\n", {"data.jsonl: line 2", why});
  };
  line2("{", "not JSON");
  line2("[1]", "is no JSON object");
  line2("{}", "line 2: has neither 'messages' nor");
  line2(R"({"prompt": "a"})", "completion");
  line2(R"({"prompt": "a", "completion": ""})", "nothing to learn");
  line2(R"({"prompt": "a", "completion": 3})", "completion");
  line2(R"({"prompt": "a", "completion": "b", "weight": 1})", "'weight' is not known");
  line2(R"({"text": ""})", "nothing to learn");
  line2(R"({"messages": "a"})", "messages");
  line2(R"({"messages": [{"role": "user", "content": "a"}]})",
        "no message of the role 'assistant'");
  line2(R"({"messages": [{"role": "assistant"}]})", "content");
  line2(R"({"messages": [{"role": "assistant", "content": "a", "name": "b"}]})", "'name'");
  expect(ErrorKind::File, "\n\n", {"data.jsonl", "there are no samples"});
}

TEST_F(FinetuneErrors, SamplesFitTheRowsAndTheModel) {
  expect(ErrorKind::Value, good_ + test::message_line(std::string(200, 'a'), "b"),
         {"line 26", "the sample has 205 tokens, a row holds 128"});
  expect(ErrorKind::Value, good_, {"a length of 4096, the model's context is 128"},
         {.lora = Lora{}, .length = 4096});
  expect(ErrorKind::Value, test::message_line("a", "b"), {"none is left to train on"});
  nlohmann::json tokenizer = test::small_tokenizer();
  tokenizer["model"]["vocab"]["a"] = 70;
  test::write_json(folder_ / "model" / "tokenizer.json", tokenizer);
  expect(ErrorKind::Value, good_, {"token 70", "vocabulary has 64"});
}

TEST_F(FinetuneErrors, ConversationsNeedATemplateThatTakesThem) {
  test::write_json(folder_ / "model" / "tokenizer_config.json",
                   {{"chat_template", "{{ raise_exception('no roles') }}"}});
  expect(ErrorKind::Value, good_, {"line 1", "no roles"});
  test::write_json(folder_ / "model" / "tokenizer_config.json", nlohmann::json::object());
  expect(ErrorKind::File, good_, {"line 1", "chat template"});
}

TEST_F(FinetuneErrors, TargetsAndOptionsAreChecked) {
  expect(ErrorKind::Value, good_, {"'queries'", "q_proj", "down_proj"},
         {.lora = Lora{.targets = {"q", "queries"}}});
  expect(ErrorKind::Value, good_, {"lr is 0"}, {.lr = 0});
  expect(ErrorKind::Value, good_, {"held_out is 1"}, {.held_out = 1});
  expect(ErrorKind::Value, good_, {"rank is 0"}, {.lora = Lora{.rank = 0}});
  expect(ErrorKind::DType, good_, {"f16"}, {.dtype = DType::F16});
  expect(ErrorKind::File, good_, {"nothing to resume"}, {.resume = true});
}

TEST_F(FinetuneErrors, QuantizedWeightsAreNotTrained) {
  models::quantize_language_model(folder_ / "model", folder_ / "int8",
                                  {.form = models::WeightForm::Int8});
  std::filesystem::remove_all(folder_ / "model");
  std::filesystem::rename(folder_ / "int8", folder_ / "model");
  expect(ErrorKind::Value, good_, {"is quantized: only adapters"}, {});
}

TEST_F(FinetuneErrors, AnOutputThatIsThereStays) {
  test::write_file(folder_ / "data.jsonl", good_);
  std::filesystem::create_directories(folder_ / "out");
  test::write_file(folder_ / "out" / "mine", "precious");
  const auto refused = [&](const Options& options) {
    return test::error_of(ErrorKind::File, [&] {
      run(folder_ / "model", folder_ / "data.jsonl", folder_ / "out", options);
    });
  };
  EXPECT_NE(refused({.lora = Lora{}}).find("is there already and not empty"), std::string::npos);
  EXPECT_EQ(test::read_file(folder_ / "out" / "mine"), "precious");
}

TEST_F(FinetuneErrors, AResumedRunHasTheSameSettings) {
  test::write_file(folder_ / "data.jsonl", good_);
  Options options = {.lora = Lora{}, .length = 64, .batch = 2, .steps = 4, .held_out = 0};
  const auto go = [&](std::int64_t last) {
    return run(folder_ / "model", folder_ / "data.jsonl", folder_ / "out", options,
               [&](const Progress& progress) { return progress.step < last; });
  };
  EXPECT_TRUE(go(1).stopped);
  options.resume = true;
  options.lr = 0.5;
  const auto refused = [&] { return test::error_of(ErrorKind::Value, [&] { go(9); }); };
  EXPECT_NE(refused().find("cannot resume: lr is 0.5 now, the checkpoint has 0.0001"),
            std::string::npos);
  options.lr = 1e-4;
  test::write_file(folder_ / "data.jsonl", good_ + test::message_line("a", "b"));
  EXPECT_NE(refused().find("cannot resume: data is 26 samples"), std::string::npos);
}

class AdapterErrors : public testing::Test {
protected:
  AdapterErrors() {
    test::write_model_to_finetune(folder_ / "model", "llama");
    test::write_file(folder_ / "data.jsonl", test::small_conversations());
    run(folder_ / "model", folder_ / "data.jsonl", folder_ / "adapter",
        {.lora = Lora{.rank = 2}, .length = 64, .steps = 1, .held_out = 0});
    config_ = nlohmann::json::parse(test::read_file(folder_ / "adapter" / "adapter_config.json"));
    tensors_ = io::load_safetensors(folder_ / "adapter" / "adapter_model.safetensors");
  }

  void expect(ErrorKind kind, const nlohmann::json& config, const io::TensorMap& tensors,
              std::initializer_list<const char*> parts, const char* model = "model") {
    test::write_json(folder_ / "adapter" / "adapter_config.json", config);
    io::save_safetensors(folder_ / "adapter" / "adapter_model.safetensors", tensors);
    const std::string message = test::error_of(kind, [&] {
      models::LanguageModel::load(folder_ / model, {.adapter = folder_ / "adapter"});
    });
    for (const char* part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message << "\n  lacks: " << part;
  }

  test::TempFolder folder_;
  nlohmann::json config_;
  io::TensorMap tensors_;
};

TEST_F(AdapterErrors, AdaptersThatDoNotFitAreNamed) {
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  ASSERT_TRUE(tensors_.contains(name));
  const auto changed = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json config = config_;
    config[key] = value;
    return config;
  };
  expect(ErrorKind::Unsupported, changed("peft_type", "IA3"), tensors_, {"peft_type", "IA3"});
  expect(ErrorKind::Unsupported, changed("use_dora", true), tensors_, {"use_dora"});
  for (const char* way : {"pissa", "pissa_niter_16", "olora", "corda", "loftq"})
    expect(ErrorKind::Unsupported, changed("init_lora_weights", way), tensors_,
           {"init_lora_weights", way, "changed weights"});
  expect(ErrorKind::Unsupported, changed("rank_pattern", {{"a", 4}}), tensors_, {"rank_pattern"});
  expect(ErrorKind::Unsupported, changed("modules_to_save", {"lm_head"}), tensors_,
         {"modules_to_save"});
  expect(ErrorKind::File, changed("r", 3), tensors_, {"lora_", "the rank ask"});
  expect(ErrorKind::File, changed("r", 0), tensors_, {"'r'"});
  expect(ErrorKind::File, config_, {}, {"there are no tensors"});
  io::TensorMap tensors = tensors_;
  tensors.erase(name);
  expect(ErrorKind::File, config_, tensors, {name.c_str(), "is missing"});
  tensors = tensors_;
  tensors.emplace("base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", zeros({2, 32}));
  expect(ErrorKind::File, config_, tensors, {"layers.7", "another model"});
  tensors = tensors_;
  tensors.emplace("head.weight", zeros({2, 32}));
  expect(ErrorKind::File, config_, tensors, {"'head.weight'", "none of a LoRA adapter"});
  test::write_model_to_finetune(folder_ / "other", "gpt2");
  expect(ErrorKind::File, config_, tensors_, {"another model", "c_attn"}, "other");
  test::write_gguf(folder_ / "model.gguf", test::golden_language("llama"));
  expect(ErrorKind::Unsupported, config_, tensors_, {"GGUF"}, "model.gguf");
  EXPECT_NO_THROW(models::LanguageModel::load(folder_ / "model", {}));
}

TEST_F(AdapterErrors, MergingWritesNothingWhereItIsRefused) {
  models::quantize_language_model(folder_ / "model", folder_ / "int8",
                                  {.form = models::WeightForm::Int8});
  EXPECT_NE(test::error_of(ErrorKind::Value,
                           [&] {
                             models::merge_adapter(folder_ / "int8", folder_ / "adapter",
                                                   folder_ / "out");
                           })
                .find("is quantized"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  EXPECT_NE(test::error_of(ErrorKind::File,
                           [&] {
                             models::merge_adapter(folder_ / "model", folder_ / "adapter",
                                                   folder_ / "int8");
                           })
                .find("not empty"),
            std::string::npos);
}

} // namespace
} // namespace egret::finetune

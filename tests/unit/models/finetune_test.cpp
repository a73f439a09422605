// Fine-tuning: which tokens are learnt, rows of several samples, adapters in memory and in files,
// and runs that are stopped and continued.
#include "egret/finetune.h"
#include "egret/functional.h"
#include "egret/language_model.h"
#include "finetune/rows.h"
#include "finetune/trainer.h"
#include "support/finetuning.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>

namespace egret::finetune {
namespace {

using models::LanguageModel;

class Finetune : public ::testing::Test {
protected:
  std::filesystem::path model(const char* name) {
    const std::filesystem::path path = folder_ / name;
    if (!std::filesystem::exists(path))
      test::write_model_to_finetune(path, name);
    return path;
  }
  std::filesystem::path data(const std::string& lines) {
    const std::filesystem::path path = folder_ / "data.jsonl";
    test::write_file(path, lines);
    return path;
  }
  std::vector<Sample> samples(const std::string& lines) {
    return read_samples(data(lines), Tokenizer::load(model("llama")), 64, 64);
  }
  /// The text of the tokens that a sample learns.
  std::string learnt(const Sample& sample) {
    std::vector<int> tokens;
    for (std::size_t i = 0; i < sample.tokens.size(); ++i)
      if (sample.learnt[i])
        tokens.push_back(sample.tokens[i]);
    return Tokenizer::load(model("llama")).decode(tokens, false);
  }
  std::string bytes(const char* out, const char* file) {
    return test::read_file(folder_ / out / file);
  }

  test::TempFolder folder_;
};

TEST_F(Finetune, LearnsTheAnswersOfAConversation) {
  const auto found = samples("\n" +
                             nlohmann::json{{"messages",
                                             {{{"role", "system"}, {"content", "be good"}},
                                              {{"role", "user"}, {"content", "hello"}},
                                              {{"role", "assistant"}, {"content", "hi"}},
                                              {{"role", "user"}, {"content", "who"}},
                                              {{"role", "assistant"}, {"content", "me"}}}}}
                                 .dump() +
                             "\n");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].line, 2U);
  EXPECT_EQ(learnt(found[0]), "hi<|end|>me<|end|>");
  EXPECT_EQ(Tokenizer::load(model("llama")).decode(found[0].tokens, false),
            "<|system|>be good<|end|><|user|>hello<|end|><|assistant|>hi<|end|><|user|>who<|end|>"
            "<|assistant|>me<|end|>");
}

TEST_F(Finetune, LearnsCompletionsAndTextsWithTheirEnd) {
  const auto found = samples(R"({"prompt": "one ", "completion": "two"}
{"text": "three"})");
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(learnt(found[0]), "two</s>");
  EXPECT_EQ(learnt(found[1]), "hree</s>") << "nothing stands before the first token";
}

// As templates do that leave the thoughts of earlier answers out.
TEST_F(Finetune, AConversationThatATemplateRewritesBecomesASampleAnAnswer) {
  test::write_json(
      model("llama") / "tokenizer_config.json",
      {{"chat_template",
        "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' and loop.last %}!{% "
        "endif %}{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% "
        "endif %}"}});
  const auto found = samples(nlohmann::json{{"messages",
                                             {{{"role", "user"}, {"content", "a"}},
                                              {{"role", "assistant"}, {"content", "b"}},
                                              {{"role", "user"}, {"content", "c"}},
                                              {{"role", "assistant"}, {"content", "d"}}}}}
                                 .dump());
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(learnt(found[0]), "!b<|end|>");
  EXPECT_EQ(learnt(found[1]), "!d<|end|>");
}

Sample sample_of(std::vector<int> tokens) {
  std::vector<bool> learnt(tokens.size(), true);
  learnt[0] = false;
  return {std::move(tokens), std::move(learnt), 1};
}

TEST_F(Finetune, RowsHoldSeveralSamples) {
  std::vector<Sample> samples = {sample_of({1, 2, 3}), sample_of({4, 5, 6, 7, 8}),
                                 sample_of({9, 10, 11})};
  samples[0].learnt[1] = false;
  const Rows rows(samples, 6);
  EXPECT_EQ(rows.size(), 2);
  EXPECT_EQ(rows.learnt(), 1 + 4 + 2);
  const std::vector<std::int64_t> numbers = {0, 1, -1};
  const Batch batch = rows.batch(numbers);
  using Values = std::vector<std::int64_t>;
  const std::int64_t none = kNotLearnt;
  EXPECT_EQ(batch.tokens.to_vector<std::int64_t>(),
            (Values{4, 5, 6, 7, 1, 2, 9, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.targets.to_vector<std::int64_t>(),
            (Values{5, 6, 7, 8, none, 3, 10, 11, none, none, none, none, none, none, none, none,
                    none, none}));
  EXPECT_EQ(batch.positions.to_vector<std::int64_t>(),
            (Values{0, 1, 2, 3, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(batch.texts.to_vector<std::int64_t>(),
            (Values{0, 0, 0, 0, 1, 1, 0, 0, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1}));
}

TEST_F(Finetune, EachEpochHasAllRowsInAnOrderOfItsOwn) {
  std::vector<std::vector<std::int64_t>> epochs(2);
  for (std::int64_t step = 0; step < 10; ++step) // of 4 rows each, 20 an epoch
    for (const std::int64_t row : rows_of_step(step, 4, 20, 7))
      epochs[static_cast<std::size_t>(step / 5)].push_back(row);
  EXPECT_NE(epochs[0], epochs[1]);
  for (auto& epoch : epochs) {
    std::ranges::sort(epoch);
    for (std::int64_t row = 0; row < 20; ++row)
      EXPECT_EQ(epoch[static_cast<std::size_t>(row)], row);
  }
}

/// The loss of all samples by the logits of each alone.
double loss_alone(LanguageModel& model, const std::vector<Sample>& samples) {
  double sum = 0, count = 0;
  for (const Sample& sample : samples) {
    const std::vector<float> logits = model.logits(sample.tokens).to_vector<float>();
    const std::size_t vocabulary = logits.size() / sample.tokens.size();
    for (std::size_t t = 0; t + 1 < sample.tokens.size(); ++t) {
      if (!sample.learnt[t + 1])
        continue;
      const float* row = logits.data() + t * vocabulary;
      double total = 0;
      for (std::size_t i = 0; i < vocabulary; ++i)
        total += std::exp(static_cast<double>(row[i]));
      sum += std::log(total) - row[sample.tokens[t + 1]];
      ++count;
    }
  }
  return sum / count;
}

// Sliding windows, learned positions, and softcaps beside plain attention.
TEST_F(Finetune, SamplesOfARowDoNotSeeEachOther) {
  for (const char* name : {"mistral", "gpt2", "gemma2"}) {
    SCOPED_TRACE(name);
    const std::vector<Sample> samples =
        read_samples(data(test::small_conversations()), Tokenizer::load(model(name)), 96, 64);
    const std::vector<Sample> few(samples.begin(), samples.begin() + 5);
    const models::language::ModelFolder folder(model(name), 96, {});
    const auto parameters =
        models::language::parameters_of(folder.source, folder.row, folder.config);
    const Rows rows(few, 96);
    ASSERT_LT(rows.size(), 5);
    LanguageModel alone = LanguageModel::load(model(name), {.context = 96});
    const double expected = loss_alone(alone, few);
    Trainer whole(folder, parameters, {}, {});
    EXPECT_NEAR(whole.loss(rows, 2), expected, 1e-4 * expected);
    const auto targets = models::language::targeted(parameters.layers, {}, "");
    Trainer lora(folder, parameters, targets, {.lora = Lora{}});
    EXPECT_NEAR(lora.loss(rows, 2), expected, 1e-4 * expected) << "an adapter begins as nothing";
  }
}

const Options kLora = {.lora = Lora{.rank = 4, .alpha = 8, .targets = {"q", "v", "o_proj", "down"}},
                       .length = 64,
                       .batch = 2,
                       .steps = 8,
                       .lr = 0.02,
                       .warmup = 2,
                       .weight_decay = 0.01,
                       .held_out = 0.2,
                       .seed = 5};

TEST_F(Finetune, HeldOutLossFallsAndAResumedRunHasTheSameBytes) {
  for (const bool lora : {true, false}) {
    SCOPED_TRACE(lora);
    Options options = kLora;
    if (!lora) {
      options.lora.reset();
      options.lr = 0.005;
    }
    const auto lines = data(test::small_conversations());
    const std::string name = lora ? "adapter" : "model";
    const auto run_to = [&](const std::string& out, std::int64_t last) {
      return run(model("llama"), lines, folder_ / out, options,
                 [&](const Progress& progress) { return progress.step < last; });
    };
    const Outcome whole = run_to(name, 100);
    EXPECT_FALSE(whole.stopped);
    EXPECT_EQ(whole.samples, 20U);
    EXPECT_EQ(whole.held_out_samples, 5U);
    ASSERT_TRUE(whole.held_out && whole.held_out_before);
    EXPECT_LT(*whole.held_out, *whole.held_out_before - 0.05);

    EXPECT_TRUE(run_to(name + "2", 3).stopped);
    EXPECT_FALSE(std::filesystem::exists(folder_ / (name + "2") / "config.json"));
    EXPECT_FALSE(std::filesystem::exists(folder_ / (name + "2") / "adapter_config.json"));
    options.resume = true;
    EXPECT_TRUE(run_to(name + "2", 5).stopped);
    const Outcome rest = run_to(name + "2", 100);
    EXPECT_EQ(rest.held_out, whole.held_out);
    EXPECT_EQ(rest.loss, whole.loss);
    for (const auto& file : std::filesystem::directory_iterator(folder_ / name)) {
      const std::string is = file.path().filename().string();
      EXPECT_EQ(bytes((name + "2").c_str(), is.c_str()), bytes(name.c_str(), is.c_str())) << is;
    }
    EXPECT_FALSE(std::filesystem::exists(folder_ / (name + "2") / "training.safetensors"));
    // What was saved gives the loss that was measured.
    const std::vector<Sample> samples =
        read_samples(lines, Tokenizer::load(model("llama")), 64, 64);
    LanguageModel before = LanguageModel::load(model("llama"), {.context = 64});
    LanguageModel after =
        lora ? LanguageModel::load(model("llama"), {.context = 64, .adapter = folder_ / name})
             : LanguageModel::load(folder_ / name, {.context = 64});
    EXPECT_LT(loss_alone(after, samples), loss_alone(before, samples) - 0.05);
  }
}

// As it is killed after it began to write its result and before it removed its checkpoint.
TEST_F(Finetune, ARunThatIsKilledWhileItSavesItsResultIsResumed) {
  Options options = kLora;
  options.checkpoint_every = 1;
  const auto lines = data(test::small_conversations());
  const auto out = folder_ / "adapter", checkpoint = out / "training.safetensors";
  run(model("llama"), lines, out, options, [&](const Progress& progress) {
    if (progress.step == options.steps)
      std::filesystem::copy_file(checkpoint, folder_ / "kept");
    return true;
  });
  ASSERT_FALSE(std::filesystem::exists(checkpoint));
  std::map<std::string, std::string> whole;
  for (const auto& file : std::filesystem::directory_iterator(out))
    whole[file.path().filename().string()] = test::read_file(file.path());
  ASSERT_TRUE(whole.contains("adapter_config.json"));

  std::filesystem::copy_file(folder_ / "kept", checkpoint);
  test::write_file(out / "adapter_model.safetensors", "half of");
  options.resume = true;
  EXPECT_FALSE(run(model("llama"), lines, out, options).stopped);
  EXPECT_FALSE(std::filesystem::exists(checkpoint));
  for (const auto& [name, bytes] : whole)
    EXPECT_EQ(test::read_file(out / name), bytes) << name;
}

// Fused matrices, transposed ones and those of experts too.
TEST_F(Finetune, AMergedAdapterGivesTheSameLogits) {
  const std::vector<int> ids = {1, 9, 30, 12, 44, 8, 61, 17};
  const std::vector<std::pair<const char*, std::vector<std::string>>> cases = {
      {"phi3", {"qkv", "gate_up"}},
      {"gpt2", {"c_attn", "c_proj"}},
      {"qwen3_moe", {"q", "gate", "up", "down"}}};
  for (const auto& [name, targets] : cases) {
    SCOPED_TRACE(name);
    Options options = kLora;
    options.lora->targets = targets;
    options.steps = 3;
    options.held_out = 0;
    const std::string out = std::string(name) + "-adapter", merged = std::string(name) + "-merged";
    run(model(name), data(test::small_conversations()), folder_ / out, options);
    models::merge_adapter(model(name), folder_ / out, folder_ / merged);
    std::vector<float> written; // log p of a token that is written alone, with its experts only
    const auto logits = [&](const std::filesystem::path& path,
                            const std::filesystem::path& adapter) {
      LanguageModel one = LanguageModel::load(path, {.context = 64, .adapter = adapter});
      models::GenerationBatch batch(one);
      (void)batch.add({9}, {.max_new = 1, .stop = std::vector<int>{}, .top_logprobs = 0});
      written.push_back(batch.step().at(0).logprobs.value().value);
      return one.logits(ids).to_vector<float>();
    };
    const auto beside = logits(model(name), folder_ / out), added = logits(folder_ / merged, {}),
               plain = logits(model(name), {});
    float most = 0, off = 0, change = 0;
    for (std::size_t i = 0; i < beside.size(); ++i) {
      most = std::max(most, std::fabs(beside[i]));
      off = std::max(off, std::fabs(beside[i] - added[i]));
      change = std::max(change, std::fabs(beside[i] - plain[i]));
    }
    EXPECT_LE(off, 1e-4F * most);
    EXPECT_GT(change, 1e-2F * most);
    EXPECT_NEAR(written[0], written[1], 1e-3);
  }
}

// As PEFT has them: a module for each expert, and none for an expert that has no update.
TEST_F(Finetune, AdaptersOfExpertsHaveAModuleForEach) {
  Options options = kLora;
  options.lora->targets = {"w3"};
  options.steps = 3;
  options.held_out = 0;
  run(model("mixtral"), data(test::small_conversations()), folder_ / "adapter", options);
  const std::filesystem::path file = folder_ / "adapter" / "adapter_model.safetensors";
  io::TensorMap tensors = io::load_safetensors(file);
  const nlohmann::json config = test::golden_language("mixtral")["config"];
  const auto size = [&](const char* key) { return config[key].get<std::int64_t>(); };
  const std::string one = "base_model.model.model.layers.0.block_sparse_moe.experts.1.w3.lora_";
  EXPECT_EQ(std::ssize(tensors), 2 * size("num_local_experts") * size("num_hidden_layers"));
  EXPECT_EQ(tensors.at(one + "A.weight").sizes(),
            (std::vector{options.lora->rank, size("hidden_size")}));
  EXPECT_EQ(tensors.at(one + "B.weight").sizes(),
            (std::vector{size("intermediate_size"), options.lora->rank}));
  const auto logits = [&] {
    return LanguageModel::load(model("mixtral"), {.context = 64, .adapter = folder_ / "adapter"})
        .logits(std::vector<int>{1, 9, 30, 12, 44, 8, 61, 17})
        .to_bytes();
  };
  tensors.at(one + "B.weight") = zeros_like(tensors.at(one + "B.weight"));
  io::save_safetensors(file, tensors);
  const auto with_zeros = logits();
  tensors.erase(one + "A.weight");
  EXPECT_TRUE(tensors.contains(one + "B.weight"));
  io::save_safetensors(file, tensors);
  EXPECT_NE(test::error_of(ErrorKind::File, [&] { (void)logits(); }).find(one + "A.weight"),
            std::string::npos);
  tensors.erase(one + "B.weight");
  io::save_safetensors(file, tensors);
  EXPECT_EQ(logits(), with_zeros);
}

// QLoRA (Dettmers et al. 2023): the matrices stay packed.
TEST_F(Finetune, AdaptersOfAQuantizedModelAreTrained) {
  models::quantize_language_model(model("llama"), folder_ / "int8",
                                  {.form = models::WeightForm::Int8});
  Options options = kLora;
  options.steps = 6;
  const Outcome done =
      run(folder_ / "int8", data(test::small_conversations()), folder_ / "out", options);
  EXPECT_LT(*done.held_out, *done.held_out_before - 0.03);
  EXPECT_NO_THROW(LanguageModel::load(folder_ / "int8", {.adapter = folder_ / "out"}));
}

} // namespace
} // namespace egret::finetune

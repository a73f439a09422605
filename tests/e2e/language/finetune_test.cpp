// egret finetune, merge and eval ppl: from a file of conversations to an adapter that generate
// reads, a run that is killed on the way, and perplexities.
#include "egret/language_model.h"
#include "egret/tokenizer.h"
#include "support/finetuning.h"
#include "support/run_tool.h"

#include <chrono>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <fmt/format.h>
#include <thread>
#include <unistd.h>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;

class FinetuneTool : public testing::Test {
protected:
  void SetUp() override {
    test::write_model_to_finetune(folder_ / "model", "llama");
    test::write_file(folder_ / "data.jsonl", test::small_conversations());
    test::write_file(folder_ / "text", "cat and dog then moon and sun. the tree then.");
  }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::string finetune(const std::string& out) const {
    return "finetune --model " + path("model") + " --data " + path("data.jsonl") + " --out " +
           path(out) + " --lora 4 --targets q,v,o --length 64 --batch 2 --steps 60 --lr 0.02 " +
           "--seed 5 --held-out 0.2 --checkpoint-every 1";
  }
  nlohmann::json perplexity(const std::string& more) const {
    const Ran ran = egret_command("eval ppl --json --text " + path("text") + " " + more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return nlohmann::json::parse(ran.out);
  }

  test::TempFolder folder_;
};

TEST_F(FinetuneTool, AKilledRunContinuesToTheSameBytes) {
  const Ran whole = egret_command(finetune("whole") + " --json");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto json = nlohmann::json::parse(whole.out);
  EXPECT_EQ(json["steps"], 60);
  EXPECT_LT(json["held_out"].get<double>(), json["held_out_before"].get<double>() - 0.1);

  const pid_t child = fork();
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    const std::string line = std::string("exec ") + EGRET_TEST_TOOL + " " + finetune("killed");
    execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    _exit(127);
  }
  int status = 0;
  while (!std::filesystem::exists(folder_ / "killed" / "training.safetensors") &&
         waitpid(child, &status, WNOHANG) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  // Wherever it was killed, also while it wrote the adapter.
  if (std::filesystem::exists(folder_ / "killed" / "training.safetensors")) {
    const Ran rest = egret_command(finetune("killed") + " --resume");
    ASSERT_EQ(rest.code, 0) << rest.err;
  } // else it had ended before
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"})
    EXPECT_EQ(test::read_file(folder_ / "killed" / file), test::read_file(folder_ / "whole" / file))
        << file;

  const std::string model = " --model " + path("model"), adapter = " --adapter " + path("whole");
  const Ran merged = egret_command("merge" + model + adapter + " --out " + path("merged"));
  ASSERT_EQ(merged.code, 0) << merged.err;
  const std::string generate = "generate --prompt 'cat and' --max-new 8 --context 64 --model ";
  const Ran beside = egret_command(generate + path("model") + adapter);
  ASSERT_EQ(beside.code, 0) << beside.err;
  EXPECT_EQ(egret_command(generate + path("merged")).out, beside.out);
  const double before = perplexity(model)["perplexity"],
               after = perplexity(model + adapter)["perplexity"];
  EXPECT_NEAR(perplexity(" --model " + path("merged"))["perplexity"].get<double>(), after,
              1e-3 * after);
  EXPECT_GT(std::fabs(after - before), 1e-2 * before);
}

TEST_F(FinetuneTool, PerplexityIsThatOfTheLogits) {
  auto direct = models::LanguageModel::load(folder_ / "model", {.context = 64});
  const std::vector<int> tokens =
      Tokenizer::load(folder_ / "model").encode(test::read_file(folder_ / "text"));
  const std::vector<float> logits = direct.logits(tokens).to_vector<float>();
  double sum = 0;
  for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
    double total = 0;
    for (std::size_t i = 0; i < 64; ++i)
      total += std::exp(static_cast<double>(logits[64 * t + i]));
    sum += std::log(total) - logits[64 * t + static_cast<std::size_t>(tokens[t + 1])];
  }
  const double expected = sum / static_cast<double>(tokens.size() - 1);
  const auto whole = perplexity("--model " + path("model") + " --length 64");
  EXPECT_EQ(whole["tokens"], tokens.size() - 1);
  EXPECT_NEAR(whole["loss"].get<double>(), expected, 1e-4 * expected);
  EXPECT_NEAR(whole["perplexity"].get<double>(), std::exp(expected), 1e-3 * std::exp(expected));
}

TEST_F(FinetuneTool, SaysWhatIsMissingOrDoesNotFit) {
  const auto refused = [&](const std::string& arguments, const char* why, int code = 1) {
    const Ran ran = egret_command(arguments);
    EXPECT_EQ(ran.code, code) << arguments << ran.err;
    expect_contains(ran.err, why);
  };
  refused(finetune("out") + " --resume", "nothing to resume");
  refused(finetune("out") + " --epochs 2", "--epochs", 2);
  refused("finetune --model " + path("model") + " --data " + path("data.jsonl") + " --out " +
              path("out") + " --targets q",
          "--targets are for --lora", 2);
  refused(finetune("model"), "is there already and not empty");
  refused(finetune("out") + " --data " + path("text"), "--data", 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
  const std::string ppl = "eval ppl --model " + path("model") + " --text ";
  refused(ppl + path("text") + " --length 8 --stride 9", "--stride 9", 2);
  refused(ppl + path("none"), "none");
  test::write_file(folder_ / "empty", "");
  refused(ppl + path("empty"), "0 tokens");
  refused("eval", "egret eval is followed by one of ppl", 2);
}

} // namespace
} // namespace egret

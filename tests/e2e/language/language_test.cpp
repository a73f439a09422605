// egret generate, egret chat and egret tokenize with a language model of a folder: a small model
// whose greedy tokens transformers computed, and a tokenizer of as many tokens.
#include "support/language_models.h"
#include "support/run_tool.h"
#include "support/small_tokenizer.h"

#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::Ran;
using test::small_tokenizer;

class LanguageTool : public testing::Test {
protected:
  void SetUp() override {
    test::write_language_folder(folder_.path(), golden_["config"], test::language_tensors(golden_));
    test::write_json(folder_ / "tokenizer.json", small_tokenizer());
    test::write_json(folder_ / "tokenizer_config.json",
                     {{"eos_token", "</s>"}, {"chat_template", test::kSmallTemplate}});
    test::write_file(folder_ / "turns", "hello\n\nhow are you?\n/reset\nhello\n/exit\nnever\n");
  }
  static std::string joined(const nlohmann::json& ids, const char* between) {
    return fmt::format("{}", fmt::join(ids.get<std::vector<int>>(), between));
  }
  std::string path(const char* name) const { return (folder_ / name).string(); }

  const nlohmann::json& golden_ = test::golden_language("llama");
  test::TempFolder folder_;
  const std::string model_ = "--model " + folder_.path().string();
  const std::string ids_ = " --ids " + joined(golden_["prompt"], ",");
};

TEST_F(LanguageTool, GenerateFromIdsWritesTheTokensOfTransformers) {
  const std::string greedy = joined(golden_["greedy"], " ") + "\n";
  Ran ran = egret_command("generate " + model_ + ids_ + " --max-new 64 --temperature 0 --stats");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, greedy);
  expect_contains(ran.err, "prompt: 12 tokens");
  expect_contains(ran.err, "text: 64 tokens");
  test::write_gguf(folder_ / "model.gguf", golden_);
  EXPECT_EQ(egret_command("generate --model " + path("model.gguf") + ids_ + " --max-new 64").out,
            greedy);
  const auto json =
      nlohmann::json::parse(egret_command("generate " + model_ + ids_ + " --max-new 5 --json").out);
  EXPECT_EQ(json["prompt_ids"], golden_["prompt"]);
  EXPECT_EQ(json["ids"].size(), 5U);
  EXPECT_EQ(json["reason"], "length");
}

TEST_F(LanguageTool, GenerateFromTextWritesTheTextOfTheIds) {
  const std::string generate = "generate " + model_ + " --max-new 40 ";
  const auto json =
      nlohmann::json::parse(egret_command(generate + "--prompt 'hello you' --json").out);
  const std::string text = json["text"];
  EXPECT_GT(json["ids"].size(), 0U); // a stop token may come before 40
  EXPECT_EQ(json["reason"], json["ids"].size() < 40U ? "stop" : "length");
  EXPECT_EQ(egret_command(generate + "--prompt 'hello you'").out, "hello you" + text + "\n");
  EXPECT_EQ(egret_command(generate, "printf 'hello you' |").out, "hello you" + text + "\n");

  const std::string tokenize = "tokenize --tokenizer " + folder_.path().string();
  EXPECT_EQ(egret_command(tokenize + " hello you").out, joined(json["prompt_ids"], " ") + "\n");
  EXPECT_EQ(egret_command(tokenize + " --decode --plain " + joined(json["ids"], " ")).out, text);
  EXPECT_EQ(egret_command(generate + "--ids " + joined(json["prompt_ids"], ",")).out,
            joined(json["ids"], " ") + "\n");
  expect_contains(egret_command(tokenize + " --json 'a b</s>'").out,
                  R"({"ids":[9,8,10,2],"tokens":["a","Ġ","b","</s>"]})");
  EXPECT_EQ(egret_command(tokenize + " --decode 1 x").code, 2);
}

TEST_F(LanguageTool, EqualSeedsGiveEqualText) {
  const std::string generate =
      "generate " + model_ + ids_ + " --max-new 30 --temperature 2 --top-p 0.9 --seed ";
  const std::string first = egret_command(generate + "1").out;
  EXPECT_EQ(egret_command(generate + "1").out, first);
  bool another = false;
  for (int seed = 2; seed < 10 && !another; ++seed)
    another = egret_command(generate + std::to_string(seed)).out != first;
  EXPECT_TRUE(another);
}

TEST_F(LanguageTool, ChatKeepsTheConversationUntilReset) {
  Ran ran = egret_command("chat " + model_ + " --max-new 12 --json --system 'be brief' <" +
                          path("turns"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::vector<nlohmann::json> answers;
  for (std::size_t at = 0, end; (end = ran.out.find('\n', at)) != std::string::npos; at = end + 1)
    answers.push_back(nlohmann::json::parse(ran.out.substr(at, end - at)));
  ASSERT_EQ(answers.size(), 3U) << ran.out;
  // <|system|>be brief<|end|><|user|>hello<|end|><|assistant|>
  EXPECT_EQ(answers[0]["prompt_tokens"], 10 + 8);
  EXPECT_GT(answers[1]["prompt_tokens"], 18 + 14 + 2);
  EXPECT_EQ(answers[2], answers[0]);
  EXPECT_GT(answers[0]["tokens"], 0);
  EXPECT_LE(answers[0]["tokens"], 12);
  Ran plain =
      egret_command("chat " + model_ + " --max-new 12 --system 'be brief' <" + path("turns"));
  EXPECT_EQ(plain.out, fmt::format("{}\n{}\n{}\n", answers[0]["content"].get<std::string>(),
                                   answers[1]["content"].get<std::string>(),
                                   answers[2]["content"].get<std::string>()));
}

// Without an end-of-text token an answer fills the context, which is more than the pipe holds:
// however late the signal comes, the answer has not ended. The second one is the same: behind what
// was said of the first, it could be a short one.
TEST_F(LanguageTool, ControlCStopsTheAnswerAndNotTheSession) {
  nlohmann::json config = golden_["config"];
  config.erase("eos_token_id");
  test::write_json(folder_ / "config.json", config);
  test::write_json(folder_ / "tokenizer_config.json", {{"chat_template", test::kSmallTemplate}});
  int to[2], from[2];
  ASSERT_EQ(pipe(to) + pipe(from), 0);
  ASSERT_GE(fcntl(from[1], F_SETPIPE_SZ, 4096), 4096);
  const std::string folder = folder_.path().string(), errors = path("err");
  const pid_t child = fork();
  if (child == 0) {
    dup2(to[0], STDIN_FILENO);
    dup2(from[1], STDOUT_FILENO);
    for (const int fd : {to[0], to[1], from[0], from[1]})
      close(fd);
    if (std::freopen(errors.c_str(), "w", stderr) != nullptr)
      execl(EGRET_TEST_TOOL, "egret", "chat", "--model", folder.c_str(), "--context", "16384",
            nullptr);
    _exit(127);
  }
  close(to[0]);
  close(from[1]);
  const std::string message = "hello\n";
  ASSERT_EQ(write(to[1], message.data(), message.size()), std::ssize(message));
  char byte = 0;
  ASSERT_EQ(read(from[0], &byte, 1), 1); // the answer has begun
  kill(child, SIGINT);
  while (byte != '\n')
    ASSERT_EQ(read(from[0], &byte, 1), 1);
  const std::string again = "/reset\n" + message;
  ASSERT_EQ(write(to[1], again.data(), again.size()), std::ssize(again));
  ASSERT_EQ(read(from[0], &byte, 1), 1); // and so has another
  kill(child, SIGINT);
  close(to[1]);
  while (read(from[0], &byte, 1) == 1)
    ;
  close(from[0]);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(test::read_file(errors), "(stopped)\n(stopped)\n");
}

TEST_F(LanguageTool, SaysWhatIsMissingOrDoesNotFit) {
  const auto refused = [&](const std::string& arguments, const char* why, int code = 1) {
    Ran ran = egret_command(arguments + " </dev/null");
    EXPECT_EQ(ran.code, code) << arguments << ran.err;
    EXPECT_EQ(ran.out, "") << arguments;
    expect_contains(ran.err, why);
  };
  refused("chat --model /no/such", "/no/such: there is no such folder or file");
  refused("generate --model /no/such --prompt a", "/no/such: there is no such folder or file");
  // Of what is no model, nothing is read as a tokenizer.
  test::write_file(folder_ / "text.safetensors", std::string(300, '['));
  for (const std::string& command :
       std::vector<std::string>{"chat", "serve", "eval ppl --text " + path("turns")})
    refused(command + " --model " + path("text.safetensors"),
            "text.safetensors: is neither a folder of a language model nor a GGUF file; egret "
            "generate reads the models of egret train text");
  refused("quantize " + path("config.json") + " " + path("out"), "is no folder; one with config");
  refused("generate --model /no/such --prompt a", "/no/such");
  refused("chat", "--model is required", 2);
  refused("generate " + model_ + ids_ + " --top-p 2", "--top-p: '2' is not", 2);
  refused("generate " + model_ + ids_ + " --dtype i32", "--dtype", 2);
  refused("generate " + model_ + ids_ + " --prompt a", "--prompt", 2);
  refused("generate " + model_ + ids_ + " --no-cache", "--no-cache is for models that egret train",
          2);
  refused("generate " + model_ + " --ids 1,x", "--ids is no list of ids at byte 2", 2);
  refused("generate " + model_ + " --ids 64", "token 64 is not in the vocabulary of 64");
  refused("generate " + model_ + " --prompt ''", "the prompt has no tokens");
  refused("generate " + model_ + ids_ + " --context 8",
          "the prompt has 12 tokens, the context holds 8");
  refused("chat " + model_ + " --context 3", "the context holds 3");
  test::write_json(folder_ / "tokenizer_config.json", nlohmann::json::object());
  refused("chat " + model_, "there is no chat template");
  std::filesystem::remove(folder_ / "tokenizer.json");
  refused("chat " + model_, "there is no tokenizer.json");
  refused("generate " + model_ + " --prompt a", "there is no tokenizer.json");
  test::write_file(folder_ / "m.gguf", "GGUF");
  refused("chat --model " + path("m.gguf"), "m.gguf");
  test::write_gguf(folder_ / "n.gguf", golden_);
  refused("chat --model " + path("n.gguf"), "'tokenizer.ggml.tokens' is missing");
  test::write_file(folder_ / "characters", "not a checkpoint");
  refused("generate --model " + path("characters") + " --min-p 0.1",
          "--min-p is for folders and GGUF files", 2);
}

TEST_F(LanguageTool, ABudgetBoundsTheCache) {
  // A block of 32 positions takes 16 KiB here: 64 blocks are 1 MiB.
  const std::string generate = "generate " + model_ + " --context 4096 --cache-mb 1 --ids ";
  std::vector<int> prompt(2100, 5);
  Ran ran = egret_command(generate + fmt::format("{}", fmt::join(prompt, ",")));
  EXPECT_EQ(ran.code, 1);
  expect_contains(ran.err,
                  "generate: 2100 tokens need 66 blocks of 32 positions, the cache has 64, "
                  "of which 64 are free");
  ran = egret_command("generate " + model_ + ids_ + " --max-new 64 --cache-mb 1 --stats");
  EXPECT_EQ(ran.out, joined(golden_["greedy"], " ") + "\n");
  expect_contains(ran.err, "a cache of 1.0 MB");
  EXPECT_EQ(egret_command("generate " + model_ + ids_ + " --cache-mb 0").code, 2);
}

TEST_F(LanguageTool, QuantizeWritesAFolderThatGenerateReads) {
  const std::string quantize = "quantize " + folder_.path().string() + " " + path("small");
  const Ran ran = egret_command(quantize + " --type int8 --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto matrices = nlohmann::json::parse(ran.out)["matrices"];
  EXPECT_EQ(matrices.size(), 16U) << "two layers of seven, the table and the head";
  for (const auto& matrix : matrices)
    EXPECT_LT(matrix["bytes_after"], matrix["bytes_before"]);
  const std::string generate = "generate --model " + path("small") + ids_ + " --max-new 12";
  const Ran packed = egret_command(generate), floats = egret_command(generate + " --dequantize");
  ASSERT_EQ(packed.code, 0) << packed.err;
  EXPECT_EQ(packed.out, floats.out);
  EXPECT_FALSE(packed.out.empty());
  const Ran plain = egret_command("dequantize " + path("small") + " " + path("plain"));
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "plain" / "config.json"));
  const Ran not_quantized = egret_command("dequantize " + path("plain") + " " + path("more"));
  EXPECT_EQ(not_quantized.code, 1);
  expect_contains(not_quantized.err, "no matrix is quantized");
  const Ran again = egret_command(quantize);
  EXPECT_EQ(again.code, 1);
  expect_contains(again.err, "is there already and not empty");
  const Ran unknown = egret_command(quantize + " --type int3");
  EXPECT_EQ(unknown.code, 2);
  expect_contains(unknown.err, "--type int3: a folder holds int8, int4, uint4, f8e4m3");
}

TEST_F(LanguageTool, QuantizeWritesAGgufFileWithTheTokenizer) {
  test::write_file(folder_ / "text", "hello you and hello all of you who read this");
  const std::string quantize = "quantize " + folder_.path().string() + " " + path("small.gguf");
  const Ran ran = egret_command(quantize + " --type f32 --text " + path("text"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  expect_contains(ran.out, "blk.0.ffn_down.weight");
  const auto at = ran.out.find("perplexity ");
  ASSERT_NE(at, std::string::npos) << ran.out;
  double before = 0, after = 0;
  ASSERT_EQ(std::sscanf(ran.out.c_str() + at, "perplexity %lf before, %lf after", &before, &after),
            2);
  EXPECT_NEAR(after, before, 1e-3 * before) << "no value was rounded";
  const std::string rest = " --max-new 12 --prompt 'hello you'";
  EXPECT_EQ(egret_command("generate --model " + path("small.gguf") + rest).out,
            egret_command("generate " + model_ + rest).out);
  const Ran unknown = egret_command(quantize + " --type int4");
  EXPECT_EQ(unknown.code, 2);
  expect_contains(unknown.err, "a GGUF file holds f32, f16, bf16, q8_0, q4_0, q4_k");
  EXPECT_EQ(egret_command(quantize + " --group 8").code, 2);
}

TEST_F(LanguageTool, DequantizeMakesAFolderOfAGgufFile) {
  ASSERT_EQ(egret_command("quantize " + folder_.path().string() + " " + path("small.gguf") +
                          " --type q8_0")
                .code,
            0);
  const Ran ran = egret_command("dequantize " + path("small.gguf") + " " + path("plain"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string rest = " --max-new 12 --prompt 'hello you'";
  EXPECT_EQ(egret_command("generate --model " + path("plain") + rest).out,
            egret_command("generate --model " + path("small.gguf") + rest).out);
  const Ran again = egret_command("dequantize " + path("small.gguf") + " " + path("plain"));
  EXPECT_EQ(again.code, 1);
  expect_contains(again.err, "is there already and not empty");
  const Ran none = egret_command("dequantize " + path("none.gguf") + " " + path("more"));
  EXPECT_EQ(none.code, 1);
  expect_contains(none.err, "none.gguf");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "more"));
}

} // namespace
} // namespace egret

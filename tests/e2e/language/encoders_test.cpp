// egret embed, classify and transcribe with small models of folders, and egret chat with the
// tokenizer of a GGUF file.
#include "egret/audio.h"
#include "egret/io.h"
#include "support/published_models.h"
#include "support/run_tool.h"
#include "support/small_tokenizer.h"

#include <fmt/format.h>

namespace egret {
namespace {

using test::egret_command;
using test::expect_contains;
using test::PublishedModel;
using test::Ran;

class EncoderTool : public ::testing::Test {
protected:
  std::string folder_of(const PublishedModel& model) const {
    model.write(folder_.path());
    test::write_json(folder_ / "tokenizer.json", test::small_tokenizer());
    return folder_.path().string();
  }
  static void refused(const std::string& arguments, const char* why, int code = 1) {
    const Ran ran = egret_command(arguments + " </dev/null");
    EXPECT_EQ(ran.code, code) << arguments << ran.err;
    EXPECT_EQ(ran.out, "") << arguments;
    expect_contains(ran.err, why);
  }
  test::TempFolder folder_;
};

TEST_F(EncoderTool, ClassifyNamesWhatAnImageShows) {
  const std::string model = "classify --model " + folder_of(PublishedModel("images/vit.json"));
  const std::string image = (folder_ / "a.ppm").string();
  test::write_file(folder_ / "a.ppm", "P6 40 32 255\n" + std::string(40 * 32 * 3, 'x'));
  Ran ran = egret_command(model + " " + image + " --top 2");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(std::ranges::count(ran.out, '\n'), 2) << ran.out;
  expect_contains(ran.out, " %  kind ");
  ran = egret_command(model + " " + image + " --json");
  const auto json = nlohmann::json::parse(ran.out);
  EXPECT_EQ(json["guesses"].size(), 5U);
  double sum = 0;
  for (const auto& guess : json["guesses"])
    sum += guess["probability"].get<double>();
  EXPECT_NEAR(sum, 1, 1e-5);
  refused(model, "image is required", 2);
  refused(model + " /no/such.png", "/no/such.png");
  test::write_file(folder_ / "a.jpg", "\xff\xd8\xff\xe0");
  refused(model + " " + (folder_ / "a.jpg").string(), "JPEG");
}

TEST_F(EncoderTool, EmbedGivesALineForEachText) {
  PublishedModel bert("encoders/bert.json");
  const std::string model = "embed --model " + folder_of(bert);
  Ran ran = egret_command(model + " hello 'how are you'");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(std::ranges::count(ran.out, '\n'), 2);
  EXPECT_EQ(std::ranges::count(ran.out, ' '), 2 * 23);
  EXPECT_EQ(egret_command(model, "printf 'hello\\n\\nhow are you\\n' |").out, ran.out);
  const auto json = nlohmann::json::parse(egret_command(model + " hello --json").out);
  double squares = 0;
  for (const double x : json["embedding"])
    squares += x * x;
  EXPECT_NEAR(squares, 1, 1e-5);
  EXPECT_EQ(json["text"], "hello");
  const std::string out = (folder_ / "e.npy").string();
  EXPECT_EQ(egret_command(model + " a b c --out " + out).code, 0);
  EXPECT_EQ(io::load_npy(out).sizes(), (std::vector<std::int64_t>{3, 24}));
  const std::string longer(200, 'a');
  refused(model + " " + longer, "the model reads 32; --truncate");
  EXPECT_EQ(egret_command(model + " --truncate " + longer).code, 0);
  refused(model, "there are no texts");
  refused(model + " --context 4 a", "are for language models", 2);
}

TEST_F(EncoderTool, TranscribeWritesPartsAndSubtitles) {
  PublishedModel whisper("speech/whisper.json");
  const std::string folder = folder_of(whisper);
  test::write_json(folder_ / "generation_config.json", whisper.golden["generation_config"]);
  std::vector<float> samples;
  std::size_t i = 0;
  for (const double x : test::golden_numbers(36800, 3999))
    samples.push_back(static_cast<float>(x * static_cast<double>(i++ / 1600 * 7 % 5) / 8));
  io::save_wav(folder_ / "a.wav", {tensor(samples).reshape({1, -1}), 16000});
  const std::string command =
      "transcribe --model " + folder + " " + (folder_ / "a.wav").string() + " --language de";
  Ran ran = egret_command(command + " --translate --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const auto first = nlohmann::json::parse(ran.out.substr(0, ran.out.find('\n')));
  EXPECT_NEAR(first["begin"].get<double>(), 0.38, 0.05);
  EXPECT_FALSE(first["text"].get<std::string>().empty());
  const std::string parts = egret_command(command + " --srt").out;
  EXPECT_TRUE(parts.starts_with("1\n00:00:00,")) << parts;
  expect_contains(parts, " --> 00:00:0");
  EXPECT_EQ(egret_command(command + " --no-times").code, 0);
  refused("transcribe --model " + folder + " /no/such.wav", "/no/such.wav");
  refused(command + "x", "'dex'; it knows de, en");
}

TEST_F(EncoderTool, IdsOfNoTokenAreNotDecodedToNothing) {
  test::write_json(folder_ / "tokenizer.json", test::small_tokenizer());
  const std::string decode =
      "tokenize --decode --tokenizer " + (folder_ / "tokenizer.json").string() + " -- ";
  EXPECT_EQ(egret_command(decode + "3 4").code, 0);
  for (const std::string id : {"1000000", "-1"})
    refused(decode + "3 " + id, ("tokenize --decode: " + id + " is the id of no token").c_str());
}

TEST_F(EncoderTool, ChatUsesTheTokenizerOfAGgufFile) {
  const nlohmann::json& golden = test::golden_language("llama");
  io::GgufMetadata more;
  std::vector<std::string> tokens(64);
  std::vector<std::int64_t> types(64, 1);
  const nlohmann::json small = test::small_tokenizer();
  for (const auto& [token, id] : small["model"]["vocab"].items())
    tokens[id.get<std::size_t>()] = token;
  for (const nlohmann::json& token : small["added_tokens"]) {
    tokens[token["id"].get<std::size_t>()] = token["content"].get<std::string>();
    types[token["id"].get<std::size_t>()] = 3;
  }
  more["tokenizer.ggml.model"] = std::string("gpt2");
  more["tokenizer.ggml.pre"] = std::string("gpt-2");
  more["tokenizer.ggml.tokens"] = tokens;
  more["tokenizer.ggml.token_type"] = types;
  std::vector<std::string> merges;
  for (const nlohmann::json& merge : small["model"]["merges"])
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  more["tokenizer.ggml.merges"] = merges;
  more["tokenizer.chat_template"] = std::string(test::kSmallTemplate);
  test::write_gguf(folder_ / "m.gguf", golden, io::GgmlType::F32, more);
  const std::string file = (folder_ / "m.gguf").string();
  test::write_language_folder(folder_.path(), golden["config"], test::language_tensors(golden));
  test::write_json(folder_ / "tokenizer.json", small);
  const std::string text = " --max-new 12 --prompt 'hello you'";
  const Ran own = egret_command("generate --model " + file + text);
  ASSERT_EQ(own.code, 0) << own.err;
  EXPECT_EQ(own.out, egret_command("generate --model " + folder_.path().string() + text).out);
  const Ran chat = egret_command("chat --max-new 5 --model " + file, "printf 'hello\\n' |");
  EXPECT_EQ(chat.code, 0) << chat.err;
  EXPECT_EQ(egret_command("tokenize --tokenizer " + file + " hello you").out,
            egret_command("tokenize --tokenizer " + folder_.path().string() + " hello you").out);
}

} // namespace
} // namespace egret

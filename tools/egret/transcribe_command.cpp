// egret transcribe: what is said in a sound, by a speech model of a folder.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "interrupts.h"
#include "language.h"

#include "egret/audio.h"
#include "egret/functional.h"
#include "egret/speech_model.h"
#include "egret/tokenizer.h"
#include "support/fail.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

namespace egret::tool {

namespace {

struct TranscribeCommandOptions {
  std::string model, sound, tokenizer, dtype;
  std::vector<std::string> ignored_keys;
  models::TranscribeOptions how;
  bool srt = false, json = false;
};

/// "00:01:02,345", as subtitles have it.
std::string clock_text(double seconds) {
  const auto all = static_cast<std::int64_t>(std::llround(seconds * 1000));
  return fmt::format("{:02}:{:02}:{:02},{:03}", all / 3600000, all / 60000 % 60, all / 1000 % 60,
                     all % 1000);
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \n"), end = text.find_last_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

void transcribe(const TranscribeCommandOptions& o) {
  LanguageOptions names;
  names.model = o.model;
  names.tokenizer = o.tokenizer;
  const Tokenizer tokenizer = tokenizer_of(names);
  models::SpeechOptions options;
  if (!o.dtype.empty())
    options.dtype = dtype_named(o.dtype);
  options.ignored_keys = o.ignored_keys;
  const io::Sound sound = io::load_wav(o.sound); // refused before weights are read
  models::SpeechModel model = models::SpeechModel::load(o.model, options);
  const Tensor samples = // all channels as one
      io::resampled(sound.samples.mean(0), sound.rate, model.config().rate).eval();
  const Interrupts interrupts(Interrupts::Reads::GoOn);
  std::size_t number = 0;
  model.transcribe(samples, o.how, [&](const models::SpeechSegment& segment) {
    const std::string text = trimmed(tokenizer.decode(segment.tokens));
    ++number;
    if (o.json)
      show(nlohmann::ordered_json{{"begin", std::round(segment.begin * 1000) / 1000},
                                  {"end", std::round(segment.end * 1000) / 1000},
                                  {"text", text}}
               .dump() +
           "\n");
    else if (o.srt)
      show(fmt::format("{}\n{} --> {}\n{}\n\n", number, clock_text(segment.begin),
                       clock_text(segment.end), text));
    else
      show(text + "\n");
    return !Interrupts::requested();
  });
}

} // namespace

void add_transcribe_command(CLI::App& app) {
  auto options = std::make_shared<TranscribeCommandOptions>();
  auto* command = app.add_subcommand("transcribe", "Write down what is said in a sound");
  command->footer("A line for each part that is said, as it is heard; other formats than WAV are\n"
                  "made into it by: ffmpeg -i SOUND -ac 1 -ar 16000 sound.wav");
  command->add_option("--model", options->model, "A folder of a Whisper model")->required();
  command->add_option("sound", options->sound, "A WAV file, of any rate and number of channels")
      ->required();
  command->add_option("--language", options->how.language,
                      "As in 'en' (default: the likeliest at the beginning)");
  command->add_flag("--translate", options->how.translate, "Into English");
  command->add_flag_callback(
      "--no-times", [options] { options->how.times = false; },
      "Hear whole windows, without the times of what is said");
  command->add_flag("--srt", options->srt, "Print subtitles with their times")
      ->excludes(command->add_flag("--json", options->json, "One JSON object a part, with times"));
  command->add_option("--tokenizer", options->tokenizer,
                      "A tokenizer.json, or a folder that has one (default: the model's)");
  command->add_option("--dtype", options->dtype, "Of weights (default: the checkpoint's)")
      ->check(CLI::IsMember({"f32", "bf16", "f16"}));
  command->add_option("--ignore-key", options->ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  add_computation(*command, [options] { transcribe(*options); });
}

} // namespace egret::tool

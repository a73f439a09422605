// A GPT over characters with its alphabet: what a text is trained with, and how it is continued.
#pragma once

#include "egret/data.h"
#include "egret/io.h"
#include "egret/models.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace egret::models {

struct TextModel {
  GptOptions shape;
  data::CharCodec codec;
  Gpt gpt;
};

/// What a checkpoint's metadata must say so that load_text_model() can read it: the shape, and the
/// alphabet in hexadecimal digits.
io::Metadata text_metadata(const GptOptions& shape, const data::CharCodec& codec);

/// The model of a checkpoint whose tree has it as `model`. Error(File) when the metadata is not
/// that of a text model or does not fit the tensors.
TextModel load_text_model(const std::filesystem::path& path);

/// Writes the model as a folder in the layout of Hugging Face's hub, a GPT-2 whose tokens are the
/// characters of the alphabet, number by number: model.safetensors, config.json, tokenizer.json,
/// tokenizer_config.json with a chat template (messages follow each other, each in a line where the
/// alphabet has a line end) and generation_config.json, which samples as SampleOptions does.
/// LanguageModel::load() gives the same logits. Its tokenizer leaves out characters that the
/// alphabet does not have. Error(File) unless there is nothing at `out`, or an empty folder, and
/// where it cannot be written.
void export_text_model(const TextModel& model, const std::filesystem::path& out);

struct SampleOptions {
  std::int64_t length = 200; ///< characters to write
  double temperature = 0.8;  ///< divides the logits; 0: always the likeliest
  std::int64_t top_k = 0;    ///< only the k likeliest (and what is as likely as the last); 0: all
  std::uint64_t seed = 0;
  /// When the context is full the last so many characters begin a new one, read again in one go; 0:
  /// half of it. With as many as the context holds each character is drawn from as many before it
  /// as there is place for, at the cost of a whole forward for each.
  std::int64_t keep = 0;
  /// Keys and values of the context are kept, so that a character costs one position's work.
  /// Without it a whole forward for each: the same text, but where logits differ in rounding alone.
  bool cache = true;
};

/// Writes on after `prompt`; each character is given to `written` as it comes. The text depends on
/// the model, the prompt and the options only. An empty prompt stands for a line end, or the first
/// character of the alphabet when there is none. Error(Value) for a character of the prompt that is
/// not in the alphabet, for options out of range and for a model that gives NaN.
void continue_text(const TextModel& model, std::string_view prompt, const SampleOptions& options,
                   const std::function<void(char)>& written);

} // namespace egret::models

// Fine-tuning of language models: all weights, or low-rank adapters beside them (LoRA, Hu et al.
// 2021), on conversations, prompts with completions, or texts.
//
//   finetune::Options options{.lora = finetune::Lora{.rank = 16, .alpha = 32}, .epochs = 2};
//   finetune::Outcome outcome = finetune::run("SmolLM2-135M", "data.jsonl", "out", options);
//   auto model = models::LanguageModel::load("SmolLM2-135M", {.adapter = "out"});
//
// docs/finetuning.md has an example from data to answers.
#pragma once

#include "egret/dtype.h"
#include "egret/tokenizer.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace egret::finetune {

/// A text to learn from.
struct Sample {
  std::vector<int> tokens;  ///< at least 2
  std::vector<bool> learnt; ///< of each token: whether the loss counts it; never the first
  std::size_t line = 0;     ///< of the file, from 1
};

/// The samples of a file with one JSON object a line; empty lines are passed over.
///
/// - {"messages": [{"role": ..., "content": ...}, ...]}: as the tokenizer's chat template writes
///   them. The answers (role assistant) are learnt, each from where the template lets an answer
///   begin to where it ends it. Where a template writes an earlier answer otherwise once others
///   follow, the conversation becomes one sample an answer.
/// - {"prompt": ..., "completion": ...}: the completion and the token of the end are learnt.
/// - {"text": ...}: all tokens but the first, and that of the end, are learnt.
///
/// Error(File) naming file, line and field for what is none of these, for lines without anything
/// to learn and for files without lines; Error(Value) naming file and line for a sample of more
/// than `length` tokens or with a token that is not below `vocabulary`, and for a conversation that
/// the template refuses. Errors of ChatTemplate::parse() for a template that cannot be read.
std::vector<Sample> read_samples(const std::filesystem::path& data, const Tokenizer& tokenizer,
                                 std::int64_t length, std::int64_t vocabulary);

struct Lora {
  std::int64_t rank = 8;
  double alpha = 16; ///< updates count alpha / rank times
  /// The matrices, by the last part of their module's name, "_proj" left out or not; none: those of
  /// queries and values.
  std::vector<std::string> targets = {};
};

struct Options {
  std::optional<Lora> lora = {}; ///< empty: all weights are trained
  /// As Tokenizer::load() takes it; empty: the model's folder.
  std::filesystem::path tokenizer = {};
  std::int64_t length = 0; ///< tokens of a row; 0: the model's context, at most 1024
  std::int64_t batch = 4;  ///< rows a step; no more than there are
  std::int64_t epochs = 1; ///< rounds over the rows, where `steps` is 0
  std::int64_t steps = 0;
  double lr = 1e-4;                  ///< the largest: linear warm-up, then half a cosine down to 0
  std::int64_t warmup = 0;           ///< steps
  double weight_decay = 0;           ///< of matrices, decoupled (AdamW)
  double clip = 1;                   ///< most norm of all gradients together; 0: any
  double held_out = 0.1;             ///< share of the samples that is never trained on
  std::int64_t evaluate_every = 0;   ///< steps between measurements; 0: before and after all
  std::int64_t checkpoint_every = 0; ///< steps between checkpoints; 0: none before the end
  bool resume = false;               ///< from the checkpoint in the output folder
  std::uint64_t seed = 0;            ///< of adapters, split and order
  /// Of products: BF16 or F32; empty: bf16 for models that are stored in it, f32 for others.
  /// Parameters, their moments and all sums are f32.
  std::optional<DType> dtype = {};
  std::optional<std::int64_t> memory_limit = {}; ///< of a step, as CompileOptions::memory_limit
  std::vector<std::string> ignored_keys = {};    ///< as models::LanguageModelOptions::ignored_keys
};

/// What an observer is told after each step, and with step 0 before the first.
struct Progress {
  std::int64_t step = 0, steps = 0; ///< done, in all
  std::optional<double> loss;       ///< mean of the step's learnt tokens
  std::optional<double> held_out;   ///< mean of the learnt tokens that are held out, when measured
  std::int64_t step_tokens = 0;     ///< that a step reads, padding among them
};

struct Outcome {
  std::int64_t steps = 0; ///< done in all
  std::int64_t parameters = 0;
  std::size_t samples = 0, held_out_samples = 0;
  std::int64_t rows = 0; ///< that the samples to train on are packed into
  std::optional<double> loss;
  std::optional<double> held_out_before, held_out; ///< before is empty for a resumed run
  /// The observer ended it: a checkpoint is there, unless no step was done, and nothing else.
  bool stopped = false;
};

/// Trains the model of a folder on a file of samples and writes the folder `out`: with
/// options.lora an adapter as PEFT has it (adapter_config.json, adapter_model.safetensors),
/// otherwise a model with the tokenizer's files, each tensor in the dtype that it had.
///
/// Samples stand in rows of options.length, several in a row (best-fit decreasing); positions of
/// each count from 0, and attention is masked so that samples do not see each other. While it runs
/// `out` holds training.safetensors only, which options.resume continues from: a run that was
/// stopped and continued ends with the same bytes as one that was not.
///
/// `observer` returns false to end the run. Everything that can be refused is
/// refused before work starts and with nothing written: Error(Value) for options out of range, a
/// target that the model has not, a length beyond the model's context, quantized weights that are
/// to be trained themselves, and for a resumed run with other settings; Error(File) for an `out`
/// that is not empty, or that holds nothing to resume; errors of read_samples() and of
/// models::LanguageModel::load().
Outcome run(const std::filesystem::path& model, const std::filesystem::path& data,
            const std::filesystem::path& out, const Options& options = {},
            const std::function<bool(const Progress&)>& observer = {});

} // namespace egret::finetune

// What generate and chat share: a language model from a folder or a GGUF file, its tokenizer, and
// answers shown as they are written.
#pragma once

#include "egret/grammar.h"
#include "egret/language_model.h"
#include "egret/text_encoder.h"
#include "egret/tokenizer.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace egret::tool {

struct LanguageOptions {
  std::string model, adapter, tokenizer, dtype, cache;
  bool dequantize = false;
  std::int64_t context = 0;              ///< 0: what the model has, at most 4096
  std::int64_t sequences = 1;            ///< texts at once
  std::int64_t cache_mb = 0;             ///< 0: what they need at their most
  std::vector<std::string> ignored_keys; ///< of config.json
  // What is empty is what the model's generation_config.json proposes.
  std::optional<std::int64_t> max_new, top_k;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::uint64_t> seed;
  std::string schema, grammar; ///< files that the text follows
  std::int64_t lookup = 0;     ///< tokens guessed at once
  bool stats = false, json = false;
};

/// --temperature, --top-k and --seed.
void add_sampling_options(CLI::App& command, LanguageOptions& options);
/// --adapter, --tokenizer, --dtype, --cache, --cache-mb, --dequantize, --context, --ignore-key and
/// --stats; their names are returned.
std::vector<std::string> add_load_options(CLI::App& command, LanguageOptions& options);
/// Those, --top-p, --min-p, --repetition-penalty, --json-schema, --grammar and --lookup; their
/// names are returned.
std::vector<std::string> add_language_options(CLI::App& command, LanguageOptions& options);

/// Whether a path is a folder or a GGUF file, by its name or how it begins.
bool is_language_model(const std::filesystem::path& path);

/// Whether a folder's config.json names an architecture of models::TextEncoder.
bool is_text_encoder(const std::filesystem::path& path);
/// Of a folder of one. UsageError that begins with `command` for options of language models.
models::TextEncoder load_text_encoder(const LanguageOptions& options, const std::string& command);

/// From a tokenizer.json, a folder that has one, or a GGUF file. Error(File) where there is none.
Tokenizer load_tokenizer(const std::filesystem::path& path);
/// Of --tokenizer, or without it of the model's folder or GGUF file; Error(File) where there is
/// none.
Tokenizer tokenizer_of(const LanguageOptions& options);
/// Of --json-schema or --grammar; null without them. Errors as Grammar and TokenTexts.
std::shared_ptr<const TokenGrammar> grammar_of(const LanguageOptions& options,
                                               const Tokenizer& tokenizer);
models::LanguageModel load_language_model(const LanguageOptions& options);
/// The model's proposals with the options over them, and stopped by what the configuration or the
/// tokenizer names as the end of a text.
models::GenerateOptions generation_of(const LanguageOptions& options,
                                      const models::LanguageModel& model,
                                      const Tokenizer* tokenizer);

/// Error(Value) unless a prompt has tokens and the context holds them.
void require_fits(std::size_t tokens, std::int64_t context);

/// Ids separated by blanks, commas and brackets; UsageError that begins with `what`.
std::vector<std::int32_t> read_ids(std::string_view text, const std::string& what);

/// The word for it in JSON: "stop", "length", "context", "interrupted".
const char* name_of(models::StopReason reason);

struct Answer {
  models::Generated generated;
  std::size_t prompt = 0;                       ///< tokens
  double prompt_seconds = 0, token_seconds = 0; ///< to the first token; median of the others
  void log_stats() const;                       ///< a line on stderr for each part
};
/// Lets the model write on; each token goes to `written`. Ends early when control-C is pressed
/// under Interrupts.
Answer write_on(models::LanguageModel& model, std::span<const int> prompt,
                const models::GenerateOptions& options, const std::function<void(int)>& written);

/// Prints a part of a result at once; on a terminal, control characters as \xNN.
void show(const std::string& text);

} // namespace egret::tool

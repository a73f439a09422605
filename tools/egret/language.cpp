#include "language.h"

#include "console.h"
#include "interrupts.h"
#include "number_option.h"

#include "egret/error.h"
#include "egret/gguf_tokenizer.h"
#include "io/json_file.h"
#include "models/keys.h"
#include "support/fail.h"
#include "support/path_status.h"
#include "support/printable.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>

namespace egret::tool {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// The time between neighbours, the middle one of all: the first may have waited for a compilation.
double median_step(const std::vector<Clock::time_point>& times) {
  if (times.size() < 2)
    return 0;
  std::vector<double> steps;
  for (std::size_t i = 1; i < times.size(); ++i)
    steps.push_back(seconds_between(times[i - 1], times[i]));
  const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
  std::nth_element(steps.begin(), middle, steps.end());
  return *middle;
}

} // namespace

void add_sampling_options(CLI::App& command, LanguageOptions& o) {
  command
      .add_option("--temperature", o.temperature,
                  "Below 1: likely tokens more often; 0: always the likeliest")
      ->check(number_within(0, 1000));
  command.add_option("--top-k", o.top_k, "Only among the likeliest so many; 0: all")
      ->check(whole_within(0, 1 << 24));
  command.add_option("--seed", o.seed, "Start of all random numbers (default: 0)")
      ->check(is_seed());
}

namespace {

std::vector<std::string> names_of(const std::vector<CLI::Option*>& options) {
  std::vector<std::string> names;
  for (const CLI::Option* option : options)
    names.push_back(option->get_name());
  return names;
}

} // namespace

std::vector<std::string> add_load_options(CLI::App& command, LanguageOptions& o) {
  return names_of(
      {command.add_option("--adapter", o.adapter,
                          "A folder with a LoRA adapter of egret finetune or PEFT for the model"),
       command.add_option("--tokenizer", o.tokenizer,
                          "A tokenizer.json, or a folder that has one (default: the model's)"),
       command
           .add_option("--dtype", o.dtype,
                       "Of weights and cache (default: the checkpoint's; f32 for quantized ones)")
           ->check(CLI::IsMember({"f32", "bf16", "f16"})),
       command
           .add_option("--cache", o.cache,
                       "Of keys and values (default: as --dtype); i8 has a scale for each vector")
           ->check(CLI::IsMember({"f32", "bf16", "f16", "f8e4m3", "i8"})),
       command
           .add_option("--cache-mb", o.cache_mb,
                       "Most MiB of keys and values (default: what --context tokens of each text "
                       "take)")
           ->check(whole_within(1, 1 << 24)),
       command.add_flag("--dequantize", o.dequantize,
                        "Keep quantized weights as floats: more memory, and faster on a CPU"),
       command
           .add_option("--context", o.context,
                       "Tokens of prompt and text together (default: the model's, at most 4096)")
           ->check(whole_within(1, 1 << 24)),
       command.add_option("--ignore-key", o.ignored_keys,
                          "A key of config.json that egret does not know and may ignore"),
       command.add_flag("--stats", o.stats, "Say on stderr how fast it was")});
}

std::vector<std::string> add_language_options(CLI::App& command, LanguageOptions& o) {
  std::vector<std::string> names = names_of(
      {command
           .add_option("--top-p", o.top_p, "Only the likeliest whose probabilities sum to so much")
           ->check(number_within(1e-9, 1)),
       command
           .add_option("--min-p", o.min_p,
                       "Only those at least so likely, beside the likeliest's 1")
           ->check(number_within(0, 1)),
       command
           .add_option("--repetition-penalty", o.repetition_penalty,
                       "Above 1: tokens that were there become less likely")
           ->check(number_within(1e-6, 1e6)),
       command
           .add_option("--lookup", o.lookup,
                       "Guess up to so many tokens at once by what followed the last ones before")
           ->check(whole_within(0, 63))});
  auto* schema = command.add_option("--json-schema", o.schema,
                                    "A file with a JSON schema: the text is JSON that it allows");
  auto* grammar = command.add_option("--grammar", o.grammar,
                                     "A file with a grammar in GBNF that the text follows");
  grammar->excludes(schema);
  names.insert(names.end(), {schema->get_name(), grammar->get_name()});
  const std::vector<std::string> more = add_load_options(command, o);
  names.insert(names.end(), more.begin(), more.end());
  return names;
}

bool is_language_model(const std::filesystem::path& path) {
  if (path_is_folder(path) || path.extension() == ".gguf")
    return true;
  std::array<char, 4> start = {};
  return path_is_file(path) &&
         std::ifstream(path, std::ios::binary).read(start.data(), start.size()) &&
         std::string_view(start.data(), start.size()) == "GGUF";
}

bool is_text_encoder(const std::filesystem::path& model) {
  const std::filesystem::path file = model / "config.json";
  if (!path_is_folder(model) || !path_exists(file))
    return false;
  models::Keys keys(io::read_json_object(file), file.string());
  const auto encoders = models::text_encoder_architectures();
  return std::ranges::find(encoders, keys.text({"model_type"}, "")) != encoders.end();
}

Tokenizer load_tokenizer(const std::filesystem::path& path) {
  if (!path_is_folder(path) && is_language_model(path))
    return models::gguf_tokenizer(io::GgufFile(path).metadata(), path.string());
  return Tokenizer::load(path);
}

Tokenizer tokenizer_of(const LanguageOptions& o) {
  if (!o.tokenizer.empty())
    return load_tokenizer(o.tokenizer);
  const std::filesystem::path model = o.model;
  if (!path_exists(model))
    fail(ErrorKind::File, "{}: there is no such folder or file; egret downloads no models",
         o.model);
  if (!is_language_model(model))
    fail(ErrorKind::File,
         "{}: is neither a folder of a language model nor a GGUF file; egret generate reads the "
         "models of egret train text",
         o.model);
  if (!path_is_folder(model))
    return load_tokenizer(model);
  if (!path_exists(model / "tokenizer.json"))
    fail(ErrorKind::File, "{}: there is no tokenizer.json; --tokenizer names another folder",
         o.model);
  return Tokenizer::load(model);
}

std::shared_ptr<const TokenGrammar> grammar_of(const LanguageOptions& o,
                                               const Tokenizer& tokenizer) {
  if (o.schema.empty() && o.grammar.empty())
    return nullptr;
  const std::string& file = o.schema.empty() ? o.grammar : o.schema;
  const std::string text = read_text(std::filesystem::path(file));
  return std::make_shared<const TokenGrammar>(o.schema.empty() ? Grammar::parse(text, file)
                                                               : Grammar::of_schema(text, file),
                                              TokenTexts(tokenizer));
}

models::LanguageModel load_language_model(const LanguageOptions& o) {
  models::LanguageModelOptions options;
  if (!o.dtype.empty())
    options.dtype = dtype_named(o.dtype);
  if (!o.cache.empty())
    options.cache = dtype_named(o.cache);
  options.dequantize = o.dequantize;
  options.adapter = o.adapter;
  options.context = o.context;
  options.sequences = o.sequences;
  options.cache_bytes = o.cache_mb << 20;
  options.ignored_keys = o.ignored_keys;
  const auto start = Clock::now();
  models::LanguageModel model = models::LanguageModel::load(o.model, options);
  if (o.stats)
    log("load: {} of weights and a cache of {} in {}",
        bytes_text(static_cast<double>(model.weight_bytes())),
        bytes_text(static_cast<double>(model.cache_bytes())),
        seconds_text(seconds_between(start, Clock::now())));
  return model;
}

models::TextEncoder load_text_encoder(const LanguageOptions& o, const std::string& command) {
  if (!o.adapter.empty() || !o.cache.empty() || o.cache_mb > 0 || o.dequantize || o.context > 0)
    throw UsageError(command + ": --adapter, --cache, --cache-mb, --dequantize and --context are "
                               "for language models");
  models::TextEncoderOptions options;
  if (!o.dtype.empty())
    options.dtype = dtype_named(o.dtype);
  options.ignored_keys = o.ignored_keys;
  return models::TextEncoder::load(o.model, options);
}

models::GenerateOptions generation_of(const LanguageOptions& o, const models::LanguageModel& model,
                                      const Tokenizer* tokenizer) {
  models::GenerateOptions options = model.defaults();
  options.max_new = o.max_new.value_or(options.max_new);
  options.temperature = o.temperature.value_or(options.temperature);
  options.top_k = o.top_k.value_or(options.top_k);
  options.top_p = o.top_p.value_or(options.top_p);
  options.min_p = o.min_p.value_or(options.min_p);
  options.repetition_penalty = o.repetition_penalty.value_or(options.repetition_penalty);
  options.seed = o.seed.value_or(options.seed);
  options.lookup = o.lookup;
  std::vector<int> stop = options.stop.value_or(model.config().stop);
  if (tokenizer != nullptr)
    if (const auto end = tokenizer->special_id("eos_token"))
      stop.push_back(*end);
  options.stop = std::move(stop);
  return options;
}

void require_fits(std::size_t tokens, std::int64_t context) {
  if (tokens == 0)
    fail(ErrorKind::Value, "the prompt has no tokens");
  if (tokens > static_cast<std::size_t>(context))
    fail(ErrorKind::Value, "the prompt has {} tokens, the context holds {} (--context)", tokens,
         context);
}

std::vector<std::int32_t> read_ids(std::string_view text, const std::string& what) {
  std::vector<std::int32_t> ids;
  const char *at = text.data(), *end = at + text.size();
  while (true) {
    while (at < end && std::string_view(" \n\t\r,[]").find(*at) != std::string_view::npos)
      ++at;
    if (at == end)
      return ids;
    std::int32_t id = 0;
    const auto [behind, error] = std::from_chars(at, end, id);
    if (error != std::errc())
      throw UsageError(fmt::format("{} is no list of ids at byte {}", what, at - text.data()));
    ids.push_back(id);
    at = behind;
  }
}

const char* name_of(models::StopReason reason) {
  switch (reason) {
  case models::StopReason::Stop:
    return "stop";
  case models::StopReason::Length:
    return "length";
  case models::StopReason::Context:
    return "context";
  case models::StopReason::Caller:
    return "interrupted";
  }
  return "";
}

void Answer::log_stats() const {
  log("prompt: {} tokens in {} with compilation, {:.0f} tokens/s", prompt,
      seconds_text(prompt_seconds), static_cast<double>(prompt) / prompt_seconds);
  log("text: {} tokens, {:.2f} ms each (median), {:.0f} tokens/s", generated.tokens.size(),
      token_seconds * 1e3, token_seconds > 0 ? 1 / token_seconds : 0);
  if (generated.guessed > 0)
    log("lookup: {} of {} tokens guessed were right", generated.accepted, generated.guessed);
}

Answer write_on(models::LanguageModel& model, std::span<const int> prompt,
                const models::GenerateOptions& options, const std::function<void(int)>& written) {
  require_fits(prompt.size(), model.context());
  Interrupts::clear();
  Answer answer{.prompt = prompt.size()};
  const auto start = Clock::now();
  std::vector<Clock::time_point> times;
  answer.generated = model.generate(prompt, options, [&](int token) {
    times.push_back(Clock::now());
    written(token);
    return !Interrupts::requested();
  });
  answer.prompt_seconds = seconds_between(start, times.empty() ? Clock::now() : times.front());
  answer.token_seconds = median_step(times);
  return answer;
}

void show(const std::string& text) {
  fmt::print("{}", stdout_is_terminal() ? terminal_text(text) : text);
  std::fflush(stdout); // a reader sees each part as it comes
}

} // namespace egret::tool

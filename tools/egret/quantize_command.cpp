// egret quantize: a language model with smaller weights, as a folder or a GGUF file.
#include "commands.h"
#include "console.h"
#include "device_option.h"
#include "language.h"
#include "number_option.h"

#include "egret/language_model.h"
#include "support/fail.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

namespace egret::tool {

namespace {

struct QuantizeCommandOptions {
  std::string model, out, type, text, device;
  std::int64_t group = 0, length = 0;
  std::vector<std::string> ignored_keys;
  bool json = false;
};

constexpr std::int64_t kWindow = 512; // tokens of a text that are read at once

constexpr std::array kGgufTypes = {io::GgmlType::F32,  io::GgmlType::F16,  io::GgmlType::BF16,
                                   io::GgmlType::Q8_0, io::GgmlType::Q4_0, io::GgmlType::Q4_K};

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

std::vector<std::string> gguf_type_names() {
  std::vector<std::string> names;
  for (const io::GgmlType type : kGgufTypes)
    names.push_back(lower(io::info_of(type).name));
  return names;
}

io::GgmlType gguf_type(const std::string& name) {
  for (const io::GgmlType type : kGgufTypes)
    if (lower(io::info_of(type).name) == name)
      return type;
  throw UsageError(fmt::format("quantize: --type {}: a GGUF file holds {}", name,
                               fmt::join(gguf_type_names(), ", ")));
}

struct Written {
  std::vector<models::QuantizedMatrix> matrices;
  bool whole_tokenizer = false, no_tokenizer = false;
};

Written write(const QuantizeCommandOptions& o) {
  if (std::filesystem::path(o.out).extension() == ".gguf") {
    if (o.group > 0)
      throw UsageError(
          "quantize: --group is for folders; the types of GGUF have groups of their own");
    models::GgufReport report =
        models::export_gguf(o.model, o.out,
                            {.type = gguf_type(o.type.empty() ? "q4_k" : lower(o.type)),
                             .ignored_keys = o.ignored_keys});
    return {std::move(report.matrices), report.whole_tokenizer, !report.tokenizer};
  }
  const std::vector<std::string> forms = models::weight_form_names();
  const std::string type = o.type.empty() ? "int4" : lower(o.type);
  if (std::ranges::find(forms, type) == forms.end())
    throw UsageError(fmt::format("quantize: --type {}: a folder holds {}; for {} name OUT *.gguf",
                                 o.type, fmt::join(forms, ", "),
                                 fmt::join(gguf_type_names(), ", ")));
  return {models::quantize_language_model(
      o.model, o.out,
      {.form = models::weight_form_named(type), .group = o.group, .ignored_keys = o.ignored_keys})};
}

double perplexity_of(const QuantizeCommandOptions& o, const std::string& model,
                     const std::vector<int>& tokens) {
  models::LanguageModel loaded =
      models::LanguageModel::load(model, {.context = o.length, .ignored_keys = o.ignored_keys});
  const std::int64_t length = o.length > 0 ? o.length : std::min(kWindow, loaded.context());
  return models::perplexity(loaded, tokens, {.length = length}).value;
}

void quantize(const QuantizeCommandOptions& o) {
  std::vector<int> tokens;
  if (!o.text.empty()) { // before any work
    tokens = load_tokenizer(o.model).encode(read_text(o.text));
    if (tokens.size() < 2)
      fail(ErrorKind::Value, "{}: {} tokens; two are the least", o.text, tokens.size());
  }
  const Written written = write(o);
  double before = 0, after = 0;
  auto rows = nlohmann::ordered_json::array();
  for (const models::QuantizedMatrix& matrix : written.matrices) {
    before += static_cast<double>(matrix.bytes_before);
    after += static_cast<double>(matrix.bytes_after);
    rows.push_back({{"name", matrix.name},
                    {"type", matrix.type},
                    {"error", matrix.error},
                    {"bytes_before", matrix.bytes_before},
                    {"bytes_after", matrix.bytes_after}});
    if (!o.json)
      fmt::print("{:<56} {:<7} error {:.4f}\n", matrix.name, matrix.type, matrix.error);
  }
  nlohmann::ordered_json report = {{"matrices", rows}};
  if (!tokens.empty()) {
    const double was = perplexity_of(o, o.model, tokens), is = perplexity_of(o, o.out, tokens);
    report["perplexity_before"] = was;
    report["perplexity_after"] = is;
    if (!o.json)
      fmt::print("perplexity {:.4f} before, {:.4f} after ({} tokens)\n", was, is, tokens.size());
  }
  if (o.json)
    fmt::print("{}\n", report.dump());
  log("{} matrices, {} before, {} now", written.matrices.size(), bytes_text(before),
      bytes_text(after));
  if (written.no_tokenizer)
    log("{} has no tokenizer.json: the file has no tokenizer", o.model);
  if (written.whole_tokenizer)
    log("GGUF's keys cannot say this tokenizer exactly: the file has its tokenizer.json too, which "
        "egret reads and other programs may not");
}

} // namespace

void add_quantize_command(CLI::App& app) {
  auto options = std::make_shared<QuantizeCommandOptions>();
  auto* command = app.add_subcommand("quantize", "Write a language model with smaller weights");
  command->footer(fmt::format(
      "generate, chat and serve read what is written and keep matrices packed in memory.\n"
      "A folder holds {}; a GGUF file {}, and the tokenizer.\n"
      "error: the 2-norm of the difference over that of the matrix.",
      fmt::join(models::weight_form_names(), ", "), fmt::join(gguf_type_names(), ", ")));
  command->add_option("model", options->model, "A folder with config.json and safetensors")
      ->required();
  command
      ->add_option("out", options->out,
                   "A folder that is not there, or empty; or a file whose name ends in .gguf")
      ->required();
  command->add_option("--type", options->type,
                      "Of matrices (default: int4 in a folder, q4_k in a GGUF file)");
  command
      ->add_option("--group", options->group,
                   "Neighbours with one scale, in a folder (default: 32 of 4 bits, else a row)")
      ->check(whole_within(1, 1 << 20));
  command->add_option("--text", options->text,
                      "A text (UTF-8) whose perplexity is measured before and after");
  command
      ->add_option("--length", options->length,
                   "Tokens of a window of the text (default: the model's context, at most 512)")
      ->check(whole_within(2, 1 << 24));
  command->add_option("--ignore-key", options->ignored_keys,
                      "A key of config.json that egret does not know and may ignore");
  command->add_flag("--json", options->json, "Print the matrices as JSON");
  add_device_option(*command, options->device);
  command->callback([options] {
    turn_to(options->device);
    quantize(*options);
  });
}

} // namespace egret::tool

// egret embed: the embeddings of texts, by an encoder or a language model.
#include "commands.h"
#include "console.h"
#include "effort_options.h"
#include "language.h"
#include "number_option.h"

#include "egret/functional.h"
#include "egret/io.h"
#include "support/fail.h"
#include "support/read_text.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace egret::tool {

namespace {

using models::Pooling;

const std::map<std::string, Pooling> kPoolingNames = {{"mean", Pooling::Mean},
                                                      {"last", Pooling::Last},
                                                      {"cls", Pooling::First},
                                                      {"max", Pooling::Max}};

struct EmbedOptions {
  LanguageOptions language;
  std::vector<std::string> texts;
  std::string pooling, out;
  bool truncate = false;
};

/// What makes embeddings, and how many tokens it reads.
struct Embedder {
  std::int64_t context;
  std::function<std::vector<std::vector<float>>(const std::vector<std::vector<int>>&)> embed;
};

Embedder embedder_of(const EmbedOptions& o) {
  const LanguageOptions& l = o.language;
  std::optional<Pooling> pooling;
  if (!o.pooling.empty())
    pooling = kPoolingNames.at(o.pooling);
  if (!is_text_encoder(l.model)) {
    auto model = std::make_shared<models::LanguageModel>(load_language_model(l));
    return {model->context(), [model, pooling](const std::vector<std::vector<int>>& texts) {
              std::vector<std::vector<float>> all;
              for (const std::vector<int>& text : texts)
                all.push_back(model->embedding(text, pooling.value_or(model->pooling())));
              return all;
            }};
  }
  auto encoder = std::make_shared<models::TextEncoder>(load_text_encoder(l, "embed"));
  return {encoder->context(), [encoder, pooling](const std::vector<std::vector<int>>& texts) {
            return encoder->embeddings(texts, pooling);
          }};
}

/// The arguments, or else the lines of standard input that are not empty.
std::vector<std::string> texts_of(const EmbedOptions& o) {
  if (!o.texts.empty())
    return o.texts;
  const std::string all = read_text(STDIN_FILENO, "stdin");
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    std::string line = all.substr(at, end - at);
    if (line.ends_with('\r'))
      line.pop_back();
    if (!line.empty())
      texts.push_back(std::move(line));
    at = end + 1;
  }
  if (texts.empty())
    fail(ErrorKind::Value, "embed: there are no texts, neither as arguments nor on standard input");
  return texts;
}

/// The ids of a text; where they are too many and that is allowed, the last words go and the
/// special token behind them stays.
std::vector<int> tokens_of(const std::string& text, const Tokenizer& tokenizer,
                           std::int64_t context, bool truncate) {
  std::vector<int> tokens = tokenizer.encode(text);
  if (std::ssize(tokens) <= context)
    return tokens;
  if (!truncate)
    fail(ErrorKind::Value,
         "embed: a text has {} tokens, the model reads {}; --truncate leaves out what is beyond",
         tokens.size(), context);
  const int last = tokens.back();
  tokens.resize(static_cast<std::size_t>(context));
  if (tokenizer.is_special(last))
    tokens.back() = last;
  return tokens;
}

void embed(const EmbedOptions& o) {
  const Tokenizer tokenizer = tokenizer_of(o.language);
  const std::vector<std::string> texts = texts_of(o);
  const Embedder embedder = embedder_of(o);
  std::vector<std::vector<int>> tokens;
  for (const std::string& text : texts)
    tokens.push_back(tokens_of(text, tokenizer, embedder.context, o.truncate));
  const std::vector<std::vector<float>> all = embedder.embed(tokens);
  if (!o.out.empty()) {
    std::vector<float> flat;
    for (const std::vector<float>& one : all)
      flat.insert(flat.end(), one.begin(), one.end());
    io::save_npy(o.out, tensor(flat, Shape{std::ssize(all), std::ssize(all[0])}));
    log("{} embeddings of {} numbers in {}", all.size(), all[0].size(), o.out);
    return;
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    if (o.language.json)
      fmt::print("{}\n", nlohmann::ordered_json{{"text", texts[i]},
                                                {"tokens", tokens[i].size()},
                                                {"embedding", all[i]}}
                             .dump());
    else
      fmt::print("{:.6g}\n", fmt::join(all[i], " "));
}

} // namespace

void add_embed_command(CLI::App& app) {
  auto options = std::make_shared<EmbedOptions>();
  LanguageOptions& language = options->language;
  auto* command = app.add_subcommand("embed", "The embeddings of texts");
  command->footer("Each embedding has length 1, so that a product of two is the cosine of their\n"
                  "angle. One line of numbers a text; --out FILE.npy writes f32 [texts, width].");
  command->add_option("--model", language.model, "A folder of an encoder or a language model")
      ->required();
  command->add_option("text", options->texts,
                      "The texts; without them each line of standard input is one");
  command
      ->add_option("--pooling", options->pooling,
                   "Of the tokens' states (default: what the folder says, else mean)")
      ->check(CLI::IsMember({"mean", "last", "cls", "max"}));
  command->add_flag("--truncate", options->truncate,
                    "Leave out of a text what is more than the model reads");
  command->add_option("--out", options->out, "Write them to this file, in NumPy's format");
  add_load_options(*command, language);
  command->add_flag("--json", language.json, "One JSON object a text");
  add_computation(*command, [options] { embed(*options); });
}

} // namespace egret::tool

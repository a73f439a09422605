#include "serve/api.h"

#include "egret/error.h"
#include "support/hex_digit.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>

namespace egret::serve {

namespace {

using Json = nlohmann::ordered_json;

enum class Endpoint { Health, Metrics, Models, Model, Chat, Completion, Embeddings, Tokenize };

struct Route {
  std::string_view path, method;
  Endpoint endpoint;
};
constexpr std::string_view kModels = "/v1/models";
constexpr std::array<Route, 7> kRoutes = {{{"/health", "GET", Endpoint::Health},
                                           {"/metrics", "GET", Endpoint::Metrics},
                                           {kModels, "GET", Endpoint::Models},
                                           {"/v1/chat/completions", "POST", Endpoint::Chat},
                                           {"/v1/completions", "POST", Endpoint::Completion},
                                           {"/v1/embeddings", "POST", Endpoint::Embeddings},
                                           {"/tokenize", "POST", Endpoint::Tokenize}}};
constexpr Route kOneModel = {kModels, "GET", Endpoint::Model};

std::string_view path_of(std::string_view target) {
  return target.substr(0, target.find('?'));
}

/// What stands behind /v1/models/; empty where nothing does.
std::string_view model_in(std::string_view path) {
  return path.starts_with(kModels) && path.size() > kModels.size() && path[kModels.size()] == '/'
             ? path.substr(kModels.size() + 1)
             : std::string_view();
}

const Route* route_of(std::string_view target) {
  const std::string_view path = path_of(target);
  if (!model_in(path).empty())
    return &kOneModel;
  const auto* at = std::ranges::find(kRoutes, path, &Route::path);
  return at == kRoutes.end() ? nullptr : at;
}

const Route& required_route(std::string_view target) {
  if (const Route* route = route_of(target))
    return *route;
  throw Refusal(404, fmt::format("there is no path '{}'", printable(path_of(target))), "",
                "unknown_path");
}

/// %XX decoded; what is no such escape stays.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && hex_digit(text[i + 1]) >= 0 &&
        hex_digit(text[i + 2]) >= 0) {
      out += static_cast<char>(16 * hex_digit(text[i + 1]) + hex_digit(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

/// Takes as long for any text of one length.
bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i)
    difference |= static_cast<unsigned char>(i < a.size() ? a[i] : 0) ^
                  static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  return difference == 0;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  return out;
}

bool is_json_type(std::string_view type) {
  const std::string_view name = type.substr(0, type.find(';'));
  return lower_case(name.substr(0, name.find_last_not_of(" \t") + 1)) == "application/json";
}

/// Whether the text is an IPv4 or IPv6 address, and, if asked, a loopback one.
bool is_address(std::string_view text, bool loopback = false) {
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(text), error);
  return !error && (!loopback || address.is_loopback());
}

/// Whether a Host field, with a port or without, has a name that no name server is asked for.
bool is_local_or_address(std::string_view host) {
  const bool brackets = host.starts_with('[');
  const std::string_view name =
      brackets ? host.substr(1, host.find(']') - 1) : host.substr(0, host.find(':'));
  return is_address(name) || (!brackets && lower_case(name) == "localhost");
}

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::uint64_t random_bits() {
  std::random_device device; // not kept: storage of threads must stay small (tests/consume)
  return (std::uint64_t{device()} << 32U) | device();
}

} // namespace

Reply reply_of(const Refusal& refusal) {
  return {.status = refusal.status, .body = body_of(refusal)};
}

std::optional<ChatTemplate> template_of(const Tokenizer& tokenizer, const ServeOptions& options) {
  const auto text = tokenizer.chat_template();
  if (!text)
    return {};
  return ChatTemplate::parse(*text, options.model_name + ": chat template");
}

Api::Api(const ServedModel& model, const Tokenizer& tokenizer, const ServeOptions& options,
         const Metrics& metrics)
    : model_(model), tokenizer_(tokenizer), options_(options), metrics_(metrics),
      for_this_machine_(options.api_key.empty() && is_address(options.host, true)),
      template_(template_of(tokenizer, options)),
      tool_form_(tool_form_of(tokenizer.chat_template().value_or(""))), created_(unix_seconds()) {}

std::string_view Api::endpoint(std::string_view target) {
  const Route* route = route_of(target);
  return route == nullptr ? "other" : route->path;
}

std::string_view Api::method(std::string_view target) {
  const Route* route = route_of(target);
  return route == nullptr ? "" : route->method;
}

void Api::check_head(const HttpRequest& request) const {
  // DNS rebinding: a page whose name was made to mean this machine is of the same origin as this
  // server. Browsers send that name.
  if (for_this_machine_ && !request.host.empty() && !is_local_or_address(request.host))
    throw Refusal(421,
                  fmt::format("'{}' is not the name of this server, which answers to localhost and "
                              "to addresses unless it has a key",
                              printable(request.host)),
                  "", "misdirected_request");
  const Route& route = required_route(request.target);
  constexpr std::string_view scheme = "Bearer ";
  if (!options_.api_key.empty() && route.endpoint != Endpoint::Health &&
      !(request.authorization.starts_with(scheme) &&
        same_secret(request.authorization.substr(scheme.size()), options_.api_key)))
    throw Refusal(401, "the header 'Authorization: Bearer KEY' has not the key of this server", "",
                  "invalid_api_key");
  if (request.method != route.method)
    throw Refusal(405, fmt::format("{} takes {}", route.path, route.method), "", "wrong_method");
  // Pages of other origins may send other types without asking first.
  if (route.method == "POST" && !is_json_type(request.content_type))
    throw Refusal(415, "the header 'Content-Type' must be application/json");
}

std::variant<Reply, Generation, EmbeddingRequest> Api::answer(const HttpRequest& request) const {
  check_head(request);
  switch (required_route(request.target).endpoint) {
  case Endpoint::Health:
    return Reply{.body = R"({"status":"ok"})"};
  case Endpoint::Metrics:
    return Reply{.content_type = "text/plain; version=0.0.4", .body = metrics_.text()};
  case Endpoint::Models:
    return Reply{.body = json_text({{"object", "list"}, {"data", Json::array({model_json()})}})};
  case Endpoint::Model:
    require_model(unescaped(model_in(path_of(request.target))));
    return Reply{.body = json_text(model_json())};
  case Endpoint::Chat:
    return generation(read_chat_body(request.body), true);
  case Endpoint::Completion:
    return generation(read_completion_body(request.body), false);
  case Endpoint::Embeddings:
    return embeddings(read_embedding_body(request.body));
  case Endpoint::Tokenize:
    return tokenize(read_tokenize_body(request.body));
  }
  return Reply{};
}

Json Api::model_json() const {
  return {{"id", options_.model_name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "egret"},
          {"max_model_len", model_.context()}};
}

void Api::require_model(const std::string& name) const {
  if (!name.empty() && name != options_.model_name)
    throw Refusal(404,
                  fmt::format("there is no model '{}'; this server has '{}'", printable(name),
                              options_.model_name),
                  "model", "model_not_found");
}

std::string Api::render(const Messages& messages, const std::string& tools_json) const {
  // A template may loop; what it may spend bounds how long other requests wait.
  constexpr TemplateLimits limits = {.steps = 2'000'000, .output_bytes = 8U << 20U};
  if (!template_)
    throw Refusal(400, "the model has no chat template; /v1/completions continues texts",
                  "messages", "no_chat_template");
  try {
    return template_->render(
        messages, tokenizer_,
        {.generation_prompt = true, .tools_json = tools_json, .limits = limits});
  } catch (const Error& error) { // the template refuses the order of roles, say
    throw Refusal(400, error.what(), "messages");
  }
}

std::vector<int> Api::ids_of(const Prompt& prompt, bool add_special,
                             const std::string& tools_json) const {
  if (const auto* ids = std::get_if<std::vector<int>>(&prompt))
    return *ids;
  try {
    if (const auto* messages = std::get_if<Messages>(&prompt))
      return tokenizer_.encode(render(*messages, tools_json),
                               false); // the template writes special tokens
    return tokenizer_.encode(std::get<std::string>(prompt), add_special);
  } catch (const Error& error) {
    throw Refusal(400, error.what(), "prompt");
  }
}

std::shared_ptr<const TokenGrammar> Api::grammar_of(const CallText& text,
                                                    const std::string& field) const {
  constexpr std::size_t kMostGrammars = 16;
  const std::string key = text.before + text.schema;
  if (const auto known = grammars_.find(key); known != grammars_.end())
    return known->second;
  try {
    if (!texts_)
      texts_.emplace(tokenizer_);
    auto made = std::make_shared<const TokenGrammar>(
        Grammar::of_schema(text.schema, "schema", text.before, text.after), *texts_);
    if (grammars_.size() == kMostGrammars) // any one: it is compiled again when it is needed
      grammars_.erase(grammars_.begin());
    grammars_.emplace(key, made);
    return made;
  } catch (const Error& error) {
    throw Refusal(400, error.what(), field);
  }
}

/// What the answer must follow; null: nothing.
std::shared_ptr<const TokenGrammar> Api::grammar_of(const CompletionBody& body) const {
  if (!body.tools_json.empty() && tool_form_ == ToolForm::None)
    throw Refusal(400, "the model's chat template has no form of calls that is known here",
                  "tools");
  if (body.tool_choice == ToolChoice::Required) {
    if (body.format.kind != AnswerFormat::Kind::Text)
      throw Refusal(400, "'response_format' and a tool that must be called exclude each other",
                    "response_format");
    return grammar_of(call_text(tool_form_, body.tools), "tools");
  }
  if (body.format.kind == AnswerFormat::Kind::Text)
    return nullptr;
  const bool any = body.format.kind == AnswerFormat::Kind::JsonObject;
  return grammar_of(CallText{"", any ? R"({"type":"object"})" : body.format.schema, ""},
                    any ? "response_format" : "response_format.json_schema.schema");
}

/// Refuses texts that are empty, longer than the context or not of the vocabulary.
void Api::require_fits(const std::vector<int>& ids, const std::string& field) const {
  if (ids.empty())
    throw Refusal(400, fmt::format("'{}' has no tokens", field), field);
  if (std::ssize(ids) > model_.context())
    throw Refusal(400,
                  fmt::format("'{}' has {} tokens, the context holds {}", field, ids.size(),
                              model_.context()),
                  field, "context_length_exceeded");
  for (const int id : ids)
    if (id < 0 || id >= model_.vocabulary())
      throw Refusal(
          400,
          fmt::format("'{}' has token {}, the vocabulary has {}", field, id, model_.vocabulary()),
          field);
}

EmbeddingRequest Api::embeddings(const EmbeddingBody& body) const {
  require_model(body.model);
  EmbeddingRequest made{{}, body.base64, options_.model_name, 0};
  for (std::size_t i = 0; i < body.inputs.size(); ++i) {
    made.texts.push_back(ids_of(body.inputs[i], true));
    require_fits(made.texts.back(),
                 body.inputs.size() == 1 ? "input" : fmt::format("input[{}]", i));
    made.tokens += made.texts.back().size();
  }
  return made;
}

Generation Api::generation(CompletionBody body, bool chat) const {
  require_model(body.model);
  if (model_.language() == nullptr)
    throw Refusal(400,
                  fmt::format("the model '{}' is an encoder: it gives /v1/embeddings and writes no "
                              "texts",
                              options_.model_name),
                  "model", "no_generation");
  const models::LanguageModel& language = *model_.language();
  const char* field = chat ? "messages" : "prompt";
  Generation made;
  Job& job = made.job;
  job.prompt = ids_of(body.prompt, true, body.tools_json);
  require_fits(job.prompt, field);
  models::GenerateOptions& o = job.options;
  o = language.defaults();
  const std::int64_t most = options_.max_tokens > 0 ? options_.max_tokens : model_.context();
  o.max_new = std::min(body.max_tokens.value_or(most), most);
  o.temperature = body.temperature.value_or(o.temperature);
  o.top_k = body.top_k.value_or(o.top_k);
  o.top_p = body.top_p.value_or(o.top_p);
  o.min_p = body.min_p.value_or(o.min_p);
  o.repetition_penalty = body.repetition_penalty.value_or(o.repetition_penalty);
  o.presence_penalty = body.presence_penalty;
  o.frequency_penalty = body.frequency_penalty;
  o.seed = body.seed ? *body.seed : random_bits();
  o.stop = o.stop.value_or(language.config().stop);
  if (const auto end = tokenizer_.special_id("eos_token"))
    o.stop->push_back(*end);
  o.top_logprobs = body.top_logprobs.value_or(-1);
  o.grammar = grammar_of(body);
  job.stop = std::move(body.stop);
  if (body.choices > static_cast<std::size_t>(model_.sequences()) + options_.queue)
    throw Refusal(400, "'n' is more than this server takes at once", "n");
  job.choices = body.choices;
  job.one_call = body.one_call;
  // An answer in a format of its own is no call.
  if (body.tool_choice != ToolChoice::None && body.format.kind == AnswerFormat::Kind::Text) {
    job.tools = tool_form_;
    for (const Tool& tool : body.tools)
      job.tool_names.push_back(tool.name);
  }
  made.form = {.chat = chat,
               .stream = body.stream,
               .include_usage = body.include_usage,
               .logprobs = body.top_logprobs.has_value(),
               .choices = body.choices,
               .id = fmt::format("{}-{:016x}", chat ? "chatcmpl" : "cmpl", random_bits()),
               .model = options_.model_name,
               .created = unix_seconds()};
  return made;
}

Reply Api::tokenize(const TokenizeBody& body) const {
  require_model(body.model);
  const std::vector<int> ids = ids_of(body.prompt, body.add_special);
  return {.body = json_text(
              {{"count", ids.size()}, {"max_model_len", model_.context()}, {"tokens", ids}})};
}

} // namespace egret::serve

// The parts of a tokenizer, put together: added tokens, normalizer, pre-tokenizers, model,
// post-processor, decoders.
#include "egret/tokenizer.h"

#include "support/fail.h"
#include "support/printable.h"
#include "support/read_text.h"
#include "text/added_tokens.h"
#include "text/decoder.h"
#include "text/model.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/utf8.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>

namespace egret {

using text::Field;
using text::Id;

namespace {

constexpr std::uint64_t kMostFile = std::uint64_t{1} << 28;

/// What one call of encode() needs; kept for later calls.
struct Scratch {
  text::SplitScratch split;
  std::unique_ptr<text::ModelScratch> model;
  std::vector<text::AddedPart> raw, normalized;
  std::string changed;
};

} // namespace

struct Tokenizer::Impl {
  std::unique_ptr<text::Normalizer> normalizer;
  text::PreTokenizers pre_tokenizers;
  std::unique_ptr<text::Model> model;
  text::AddedTokens added;
  text::PostProcessor post_processor;
  text::Decoders decoders;
  std::map<std::string, std::string, std::less<>> special_tokens, chat_templates;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Scratch>> idle; ///< guarded by the mutex

  void read(const Field& file);
  void read_config(const Field& config);
  void encode_part(std::string_view part, bool first, Scratch& scratch, std::vector<Id>& out) const;
  std::optional<std::string_view> token(Id id) const {
    if (const text::AddedToken* token = added.find(id))
      return token->content;
    return model->vocabulary().token(id);
  }
  std::unique_ptr<Scratch> take_scratch() const {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        auto scratch = std::move(idle.back());
        idle.pop_back();
        return scratch;
      }
    }
    auto scratch = std::make_unique<Scratch>();
    scratch->model = model->scratch();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(mutex);
    idle.push_back(std::move(scratch));
  }
};

void Tokenizer::Impl::read(const Field& file) {
  model = text::make_model(file["model"]);
  if (const auto field = file.find("normalizer"))
    normalizer = text::make_normalizer(*field);
  if (const auto field = file.find("pre_tokenizer"))
    pre_tokenizers = text::make_pre_tokenizers(*field);
  if (const auto field = file.find("post_processor"))
    post_processor = text::PostProcessor(*field);
  const auto decoder = file.find("decoder");
  decoders = decoder ? text::make_decoders(*decoder) : text::make_default_decoders();
  if (const auto field = file.find("added_tokens"))
    added.read(*field, model->vocabulary());
  added.prepare(normalizer.get());
}

void Tokenizer::Impl::read_config(const Field& config) {
  if (!config.value().is_object())
    config.refuse("an object is needed");
  for (const auto& [key, value] : config.value().items()) {
    if (!key.ends_with("_token"))
      continue;
    if (value.is_string())
      special_tokens[key] = value.get<std::string>();
    else if (value.is_object()) // an added token, written in full
      special_tokens[key] = config[key.c_str()]["content"].text();
  }
  const auto field = config.find("chat_template");
  if (!field)
    return;
  if (field->value().is_string()) {
    chat_templates["default"] = field->text();
    return;
  }
  for (const Field& one : field->items())
    chat_templates[one["name"].text()] = one["template"].text();
}

Tokenizer Tokenizer::parse(std::string_view tokenizer_json, std::string_view config_json,
                           const std::string& name) {
  auto impl = std::make_shared<Impl>();
  const nlohmann::json file = text::parse_json(tokenizer_json, name);
  impl->read(Field(file, name + ": "));
  if (!config_json.empty()) {
    const std::string config_name = name + " (configuration)";
    const nlohmann::json config = text::parse_json(config_json, config_name);
    impl->read_config(Field(config, config_name + ": "));
  }
  return Tokenizer(std::move(impl));
}

Tokenizer Tokenizer::load(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path file = folder ? path / "tokenizer.json" : path;
  auto impl = std::make_shared<Impl>();
  {
    const nlohmann::json json = text::parse_json(read_text(file, kMostFile), file.string());
    impl->read(Field(json, file.string() + ": "));
  }
  const std::filesystem::path beside = file.parent_path();
  if (const auto config = beside / "tokenizer_config.json";
      std::filesystem::exists(config, ignored)) {
    const nlohmann::json json = text::parse_json(read_text(config, kMostFile), config.string());
    impl->read_config(Field(json, config.string() + ": "));
  }
  if (const auto chat = beside / "chat_template.jinja"; std::filesystem::exists(chat, ignored))
    impl->chat_templates["default"] = read_text(chat, kMostFile);
  return Tokenizer(std::move(impl));
}

namespace {

class ModelSink final : public text::PieceSink {
public:
  ModelSink(const text::Model& model, text::ModelScratch& scratch, std::vector<Id>& out)
      : model_(model), scratch_(scratch), out_(out) {}
  void take(text::Piece piece) override { model_.tokenize(piece.text, out_, scratch_); }

private:
  const text::Model& model_;
  text::ModelScratch& scratch_;
  std::vector<Id>& out_;
};

} // namespace

void Tokenizer::Impl::encode_part(std::string_view part, bool first, Scratch& scratch,
                                  std::vector<Id>& out) const {
  if (normalizer) {
    scratch.changed.assign(part);
    normalizer->apply(scratch.changed, scratch.split.regex);
    part = scratch.changed;
  }
  ModelSink sink(*model, *scratch.model, out);
  added.split(part, true, scratch.normalized);
  for (const text::AddedPart& piece : scratch.normalized)
    if (piece.id >= 0)
      out.push_back(piece.id);
    else
      text::pre_tokenize(
          pre_tokenizers,
          {part.substr(piece.begin, piece.end - piece.begin), first && piece.begin == 0},
          scratch.split, sink);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  std::string repaired;
  if (!text::is_utf8(text)) {
    repaired = text::replace_invalid_utf8(text);
    text = repaired;
  }
  auto scratch = impl_->take_scratch();
  std::vector<Id> ids;
  ids.reserve(text.size() / 3 + 8);
  impl_->added.split(text, false, scratch->raw);
  for (const text::AddedPart& part : scratch->raw)
    if (part.id >= 0)
      ids.push_back(part.id);
    else
      impl_->encode_part(text.substr(part.begin, part.end - part.begin), part.begin == 0, *scratch,
                         ids);
  impl_->give_back(std::move(scratch));
  impl_->post_processor.apply(ids, add_special);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string out;
  text::Decoding decoding(impl_->decoders, text::DecodeMode::Whole);
  for (const Id id : ids)
    if (const auto token = impl_->token(id);
        token && !(skip_special && impl_->added.is_special(id)))
      decoding.push(*token, out);
  decoding.finish(out);
  return out;
}

std::size_t Tokenizer::size() const {
  return static_cast<std::size_t>(
      std::max(impl_->model->vocabulary().end(), impl_->added.vocabulary().end()));
}

std::optional<std::int32_t> Tokenizer::id_of(std::string_view token) const {
  const auto added = impl_->added.vocabulary().find(token);
  return added ? added : impl_->model->vocabulary().find(token);
}

std::optional<std::string> Tokenizer::token_of(std::int32_t id) const {
  const auto token = impl_->token(id);
  return token ? std::optional(std::string(*token)) : std::nullopt;
}

std::optional<std::string> Tokenizer::bytes_of(std::int32_t id) const {
  const auto token = impl_->token(id);
  if (!token || impl_->added.is_special(id))
    return std::nullopt;
  std::string before, out;
  text::Decoding decoding(impl_->decoders, text::DecodeMode::Bytes);
  decoding.push("x", before);
  decoding.push(*token, out);
  return out;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return impl_->added.is_special(id);
}

std::optional<std::string> Tokenizer::special_token(std::string_view role) const {
  const auto found = impl_->special_tokens.find(role);
  return found == impl_->special_tokens.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::int32_t> Tokenizer::special_id(std::string_view role) const {
  const auto token = special_token(role);
  return token ? id_of(*token) : std::nullopt;
}

std::optional<std::string> Tokenizer::chat_template(std::string_view name) const {
  const auto found = impl_->chat_templates.find(name);
  return found == impl_->chat_templates.end() ? std::nullopt : std::optional(found->second);
}

struct StreamingDetokenizer::State {
  std::shared_ptr<const Tokenizer::Impl> tokenizer;
  bool skip_special;
  text::Decoding decoding;
};

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special)
    : state_(new State{tokenizer.impl_, skip_special,
                       text::Decoding(tokenizer.impl_->decoders, text::DecodeMode::Progressive)}) {}
StreamingDetokenizer::~StreamingDetokenizer() = default;
StreamingDetokenizer::StreamingDetokenizer(StreamingDetokenizer&&) noexcept = default;
StreamingDetokenizer& StreamingDetokenizer::operator=(StreamingDetokenizer&&) noexcept = default;

std::string StreamingDetokenizer::push(std::int32_t id) {
  std::string out;
  const auto token = state_->tokenizer->token(id);
  if (token && !(state_->skip_special && state_->tokenizer->added.is_special(id)))
    state_->decoding.push(*token, out);
  return out;
}

std::string StreamingDetokenizer::finish() {
  std::string out;
  state_->decoding.finish(out);
  state_->decoding = text::Decoding(state_->tokenizer->decoders, text::DecodeMode::Progressive);
  return out;
}

} // namespace egret

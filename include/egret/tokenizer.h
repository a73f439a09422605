// Tokenizers of published models: tokenizer.json as Hugging Face's library "tokenizers" writes it,
// with the same ids and the same text back.
//
//   Tokenizer t = Tokenizer::load("model-folder");
//   std::vector<std::int32_t> ids = t.encode("Hello world");
//   std::string text = t.decode(ids);
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret {

/// Text to ids and back. Any number of threads may use one at once; copies share everything.
///
/// Files are taken to be hostile: Error(File) names the file and the path of the value, as in
/// "tokenizer.json: model.merges[3]"; Error(Unsupported) a kind of component that is not known, or
/// dropout; Error(Parse) a malformed pattern.
class Tokenizer {
public:
  /// From a tokenizer.json, or a folder that has one. tokenizer_config.json and chat_template.jinja
  /// beside it are read when they are there. Truncation and padding of the file are not applied.
  static Tokenizer load(const std::filesystem::path& path);
  /// From the texts of tokenizer.json and of tokenizer_config.json (may be empty); `name` starts
  /// messages.
  static Tokenizer parse(std::string_view tokenizer_json, std::string_view config_json = {},
                         const std::string& name = "tokenizer");

  /// The ids of a text. What is not UTF-8 becomes U+FFFD first, one for each maximal invalid part.
  /// `add_special` puts the special tokens of the post-processor around it (such as a beginning of
  /// text); special tokens in the text itself are recognized in any case.
  /// Throws Error(Value) where the model has no token for a word and none for unknown ones, or
  /// where a pattern of the file would take too many steps.
  std::vector<std::int32_t> encode(std::string_view text, bool add_special = true) const;

  /// The text of ids, valid UTF-8. Ids without a token add nothing; `skip_special` leaves special
  /// tokens out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special = true) const;

  /// One more than the largest id.
  std::size_t size() const;
  std::optional<std::int32_t> id_of(std::string_view token) const;
  /// As the vocabulary has it (of byte-level models in the alphabet of printable bytes); nothing
  /// for an id without a token.
  std::optional<std::string> token_of(std::int32_t id) const;
  /// The bytes that a token adds to a text behind another token; they may be a part of a character.
  /// Nothing for special tokens and for an id without a token. Error(Unsupported) for a decoder
  /// that gives tokens no bytes of their own (BPEDecoder).
  std::optional<std::string> bytes_of(std::int32_t id) const;
  bool is_special(std::int32_t id) const;

  /// Of tokenizer_config.json: "bos_token", "eos_token", "pad_token", "unk_token" and the like;
  /// nothing when it is absent.
  std::optional<std::string> special_token(std::string_view role) const;
  std::optional<std::int32_t> special_id(std::string_view role) const;

  /// The template of conversations with a name ("default", "tool_use" ...), for ChatTemplate;
  /// nothing when there is none.
  std::optional<std::string> chat_template(std::string_view name = "default") const;

private:
  friend class StreamingDetokenizer;
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<const Impl> impl_;
};

/// Text from ids as they come. What push() and finish() return is decode() of all ids, in parts
/// that are valid UTF-8 each: half a character is held until its rest has come. (Where a model with
/// byte fallback writes bytes that are not UTF-8, the number of U+FFFD may differ from decode().)
class StreamingDetokenizer {
public:
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, bool skip_special = true);
  ~StreamingDetokenizer();
  StreamingDetokenizer(StreamingDetokenizer&&) noexcept;
  StreamingDetokenizer& operator=(StreamingDetokenizer&&) noexcept;

  std::string push(std::int32_t id); ///< the text that is certain now; often empty
  std::string finish();              ///< what was held back; then a new text may begin

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace egret

// A GGUF file's tokenizer in the words of tokenizer.json. Keys are those of llama.cpp's gguf-py.
#include "egret/gguf_tokenizer.h"

#include "models/language/gguf_vocabulary.h"
#include "support/fail.h"
#include "support/printable.h"
#include "text/utf8.h"

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace egret::models {

namespace {

using namespace language;
using nlohmann::json;

class GgufVocabulary {
public:
  GgufVocabulary(const io::GgufMetadata& metadata, const std::string& name)
      : metadata_(metadata), name_(name), tokens_(needed<std::vector<std::string>>("tokens")) {
    if (const auto* types = find<std::vector<std::int64_t>>("token_type"))
      types_ = *types;
    types_.resize(types_.empty() ? tokens_.size() : types_.size(), kNormal);
    if (types_.size() != tokens_.size())
      fail(ErrorKind::File, "{}: 'tokenizer.ggml.token_type' has {} elements, there are {} tokens",
           name_, types_.size(), tokens_.size());
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (!ids_.emplace(tokens_[i], i).second)
        fail(ErrorKind::File, "{}: 'tokenizer.ggml.tokens' has '{}' twice", name_,
             printable(tokens_[i]));
  }

  TokenizerFiles files() const {
    if (const auto* whole = find<std::string>("huggingface.json", "tokenizer."))
      return {*whole, config().dump()};
    const std::string& kind = needed<std::string>("model");
    json file = {{"version", "1.0"}, {"added_tokens", added()}, {"normalizer", nullptr}};
    bool begins = false;
    if (kind == "llama") {
      begins = true;
      scored(file);
    } else if (kind == "gpt2") {
      begins = byte_level(file);
    } else {
      fail(ErrorKind::Unsupported,
           "{}: 'tokenizer.ggml.model': egret does not know '{}'; it knows gpt2, llama", name_,
           printable(kind));
    }
    file["post_processor"] = around(flag("add_bos_token", begins), flag("add_eos_token", false));
    return {file.dump(), config().dump()};
  }

private:
  template <class T>
  const T* find(const char* key, const char* prefix = "tokenizer.ggml.") const {
    const auto at = metadata_.find(std::string(prefix) + key);
    if (at == metadata_.end())
      return nullptr;
    const T* value = std::get_if<T>(&at->second);
    if (value == nullptr)
      fail(ErrorKind::File, "{}: '{}{}' is of another type", name_, prefix, key);
    return value;
  }
  template <class T>
  const T& needed(const char* key) const {
    const T* value = find<T>(key);
    if (value == nullptr)
      fail(ErrorKind::File, "{}: 'tokenizer.ggml.{}' is missing", name_, key);
    return *value;
  }
  bool flag(const char* key, bool otherwise) const {
    const bool* value = find<bool>(key);
    return value == nullptr ? otherwise : *value;
  }
  std::optional<std::size_t> token(const char* key) const {
    const auto* value = find<std::int64_t>(key);
    if (value == nullptr || *value < 0) // -1: none
      return {};
    if (*value >= std::ssize(tokens_))
      fail(ErrorKind::File, "{}: 'tokenizer.ggml.{}' is {}, there are {} tokens", name_, key,
           *value, tokens_.size());
    return static_cast<std::size_t>(*value);
  }

  json vocabulary() const {
    json vocabulary = json::object();
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      vocabulary[tokens_[i]] = i;
    return vocabulary;
  }

  json added() const {
    json list = json::array();
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (types_[i] >= kUnknown && types_[i] <= kUserDefined)
        list.push_back({{"id", i},
                        {"content", tokens_[i]},
                        {"special", types_[i] != kUserDefined},
                        {"normalized", false},
                        {"single_word", false},
                        {"lstrip", false},
                        {"rstrip", false}});
    return list;
  }

  void scored(json& file) const {
    const auto& scores = needed<std::vector<double>>("scores");
    if (scores.size() != tokens_.size())
      fail(ErrorKind::File, "{}: 'tokenizer.ggml.scores' has {} elements, there are {} tokens",
           name_, scores.size(), tokens_.size());
    json list = json::array();
    // Where a file has merges too, its tokens merge by those.
    if (const auto* merges = find<std::vector<std::string>>("merges"))
      list = *merges;
    else
      for (const auto& [left, right] : merges_by_scores(tokens_, types_, scores, ids_))
        list.push_back({tokens_[left], tokens_[right]});
    const std::optional<std::size_t> unknown = token("unknown_token_id");
    const auto by_type = std::ranges::find(types_, static_cast<std::int64_t>(kUnknown));
    const json unknown_name =
        unknown ? json(tokens_[*unknown])
        : by_type != types_.end()
            ? json(tokens_[static_cast<std::size_t>(by_type - types_.begin())])
            : json(nullptr);
    file["model"] = {{"type", "BPE"},         {"unk_token", unknown_name},
                     {"fuse_unk", true},      {"byte_fallback", true},
                     {"vocab", vocabulary()}, {"merges", std::move(list)}};
    const json space = {{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", "▁"}};
    const json back = {{"type", "Replace"}, {"pattern", {{"String", "▁"}}}, {"content", " "}};
    json normalizers = json::array(), decoders = json::array({back});
    const bool prefix = flag("add_space_prefix", true);
    if (prefix)
      normalizers.push_back({{"type", "Prepend"}, {"prepend", "▁"}});
    normalizers.push_back(space);
    decoders.push_back({{"type", "ByteFallback"}});
    decoders.push_back({{"type", "Fuse"}});
    if (prefix)
      decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    file["normalizer"] = {{"type", "Sequence"}, {"normalizers", normalizers}};
    file["decoder"] = {{"type", "Sequence"}, {"decoders", decoders}};
  }

  /// Whether a text begins with the token of its beginning where the file does not say.
  bool byte_level(json& file) const {
    const std::string& name = needed<std::string>("pre");
    const auto row = std::ranges::find_if(
        kWordPatterns, [&](const WordPattern& pattern) { return pattern.name == name; });
    if (row == kWordPatterns.end()) {
      std::vector<std::string_view> known;
      for (const WordPattern& pattern : kWordPatterns)
        known.emplace_back(pattern.name);
      fail(ErrorKind::Unsupported,
           "{}: 'tokenizer.ggml.pre': egret does not know '{}'; it knows {}", name_,
           printable(name), fmt::join(known, ", "));
    }
    file["model"] = {{"type", "BPE"},
                     {"ignore_merges", row->whole_words},
                     {"vocab", vocabulary()},
                     {"merges", needed<std::vector<std::string>>("merges")}};
    json split = json::array();
    const auto by = [&](const char* pattern) {
      split.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", pattern}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    };
    if (row->digits)
      by(R"(\p{N})");
    if (row->pattern != nullptr)
      by(row->pattern);
    split.push_back({{"type", "ByteLevel"},
                     {"add_prefix_space", false},
                     {"trim_offsets", true},
                     {"use_regex", row->pattern == nullptr}});
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", split}};
    file["decoder"] = {{"type", "ByteLevel"},
                       {"add_prefix_space", true},
                       {"trim_offsets", true},
                       {"use_regex", true}};
    if (row->nfc)
      file["normalizer"] = {{"type", "NFC"}};
    return row->whole_words;
  }

  json around(bool begins, bool ends) const {
    json single = json::array(), special = json::object();
    const auto add = [&](const char* key) {
      if (const auto id = token(key)) {
        const std::string& text = tokens_[*id];
        single.push_back({{"SpecialToken", {{"id", text}, {"type_id", 0}}}});
        special[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
      }
    };
    if (begins)
      add("bos_token_id");
    single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
    if (ends)
      add("eos_token_id");
    if (special.empty())
      return nullptr;
    json pair = single;
    pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
    return {{"type", "TemplateProcessing"},
            {"single", single},
            {"pair", pair},
            {"special_tokens", special}};
  }

  json config() const {
    json config = json::object();
    for (const auto& [key, role] : {std::pair{"bos_token_id", "bos_token"},
                                    {"eos_token_id", "eos_token"},
                                    {"unknown_token_id", "unk_token"},
                                    {"padding_token_id", "pad_token"}})
      if (const auto id = token(key))
        config[role] = tokens_[*id];
    if (const auto* chat = find<std::string>("chat_template", "tokenizer."))
      config["chat_template"] = *chat;
    return config;
  }

  const io::GgufMetadata& metadata_;
  const std::string& name_;
  const std::vector<std::string>& tokens_;
  std::vector<std::int64_t> types_;
  std::unordered_map<std::string_view, std::size_t> ids_; ///< of the tokens
};

} // namespace

std::vector<std::pair<std::size_t, std::size_t>>
language::merges_by_scores(const std::vector<std::string>& tokens,
                           const std::vector<std::int64_t>& types,
                           const std::vector<double>& scores,
                           const std::unordered_map<std::string_view, std::size_t>& ids) {
  struct Merge {
    double score;
    std::size_t left, right;
  };
  std::vector<Merge> merges;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (types[i] != kNormal)
      continue;
    const std::size_t first = merges.size();
    const std::string_view piece = tokens[i];
    for (std::size_t cut = 1; cut < piece.size(); ++cut) {
      const auto left = ids.find(piece.substr(0, cut)), right = ids.find(piece.substr(cut));
      if (left != ids.end() && right != ids.end() && types[left->second] == kNormal &&
          types[right->second] == kNormal)
        merges.push_back({scores[i], left->second, right->second});
    }
    std::sort(merges.begin() + static_cast<std::ptrdiff_t>(first), merges.end(),
              [](const Merge& a, const Merge& b) {
                return std::tie(a.left, a.right) < std::tie(b.left, b.right);
              });
  }
  std::ranges::stable_sort(merges, std::ranges::greater(), &Merge::score);
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (const Merge& merge : merges)
    pairs.emplace_back(merge.left, merge.right);
  return pairs;
}

TokenizerFiles language::tokenizer_files(const io::GgufMetadata& metadata,
                                         const std::string& name) {
  const auto require_utf8 = [&](const char* key, const std::string& text) {
    if (!text::is_utf8(text))
      fail(ErrorKind::File, "{}: '{}' has a text that is not UTF-8: '{}'", name, key,
           printable(text));
  };
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.merges", "tokenizer.chat_template"})
    if (const auto at = metadata.find(key); at != metadata.end()) {
      if (const auto* texts = std::get_if<std::vector<std::string>>(&at->second))
        for (const std::string& one : *texts)
          require_utf8(key, one);
      if (const auto* one = std::get_if<std::string>(&at->second))
        require_utf8(key, *one);
    }
  return GgufVocabulary(metadata, name).files();
}

Tokenizer gguf_tokenizer(const io::GgufMetadata& metadata, const std::string& name) {
  const TokenizerFiles files = tokenizer_files(metadata, name);
  return Tokenizer::parse(files.tokenizer, files.config, name);
}

} // namespace egret::models

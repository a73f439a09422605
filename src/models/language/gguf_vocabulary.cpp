// A tokenizer.json in the keys of a GGUF file.
#include "models/language/gguf_vocabulary.h"

#include "egret/gguf_tokenizer.h"
#include "egret/tokenizer.h"
#include "io/json_file.h"
#include "support/fail.h"
#include "support/path_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

namespace egret::models::language {

namespace {

using nlohmann::json;

/// Texts by which two tokenizers are compared: spaces, digits, quotes, scripts, joined and composed
/// characters, code.
constexpr std::array kProbes = {
    "Hello world! 123 4567 89",
    "  two  spaces\n\n\ttabs \r\n and   an end ",
    "don't I'LL we've HE'S they're",
    "na\u00efve caf\u00e9 \u0152uvre d\u00e9j\u00e0-vu e\u0301 \ufb01 \u00c5",
    "\u65e5\u672c\u8a9e\u306e\u6587 \u4e2d\u6587\u3002 \ud55c\uad6d\uc5b4 "
    "\u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f600\U0001f469\u200d\U0001f467 \u2603\ufe0f",
    "if (a_b[1] != 0x1F) { return \"x\\n\" + y; } // done\n    else: pass",
    "a\u00a0b\u2003c\u3000d",
    ""};

/// A part of tokenizer.json; null where it is absent.
const json& part(const json& file, const char* name) {
  static const json kNull;
  const auto at = file.find(name);
  return at == file.end() ? kNull : *at;
}
std::string kind_of(const json& component) {
  return component.is_object() ? component.value("type", "") : "";
}

/// How a byte-level tokenizer splits words, if the rows of kWordPatterns can say it: digits by
/// themselves, a pattern.
const WordPattern* word_pattern(const json& file) {
  const json& pre = part(file, "pre_tokenizer");
  const json steps =
      kind_of(pre) == "Sequence" ? pre.value("pretokenizers", json::array()) : json::array({pre});
  bool digits = false;
  std::optional<std::string> pattern;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const json& step = steps[i];
    const std::string kind = kind_of(step);
    if (kind == "Digits" && step.value("individual_digits", false) && !pattern) {
      digits = true;
    } else if (kind == "Split" && !pattern && !step.value("invert", false) &&
               step.value("behavior", "") == "Isolated" && step.contains("pattern") &&
               step["pattern"].contains("Regex")) {
      const std::string regex = step["pattern"]["Regex"];
      if (regex == R"(\p{N})" && !digits)
        digits = true;
      else
        pattern = regex;
    } else if (kind != "ByteLevel" || i + 1 != steps.size() ||
               step.value("add_prefix_space", true) || step.value("use_regex", true) == !!pattern) {
      return nullptr;
    }
  }
  const bool nfc = kind_of(part(file, "normalizer")) == "NFC";
  if (!nfc && !part(file, "normalizer").is_null())
    return nullptr;
  const bool whole = part(file, "model").value("ignore_merges", false);
  for (const WordPattern& row : kWordPatterns)
    if (row.digits == digits && row.nfc == nfc && row.whole_words == whole &&
        (row.pattern == nullptr ? !pattern : pattern == row.pattern))
      return &row;
  return nullptr;
}

class TokenizerKeys {
public:
  TokenizerKeys(io::GgufMetadata& metadata, const std::filesystem::path& folder,
                std::int64_t vocabulary)
      : metadata_(metadata), path_(folder / "tokenizer.json"), tokenizer_(Tokenizer::load(folder)),
        file_(io::read_json_object(path_)) {
    list_tokens(static_cast<std::size_t>(vocabulary));
  }

  WrittenTokenizer write() {
    const json& model = part(file_, "model");
    bool plain = false;
    if (kind_of(model) == "BPE")
      plain = model.value("byte_fallback", false) ? put_scored(model) : put_byte_level(model);
    put("tokens", tokens_);
    put("token_type", types_);
    const bool ends = put_ends();
    if (const auto chat = tokenizer_.chat_template())
      metadata_["tokenizer.chat_template"] = *chat;
    if (plain && ends && reads_the_same())
      return WrittenTokenizer::Plain;
    metadata_[kTokenizerJson] = file_.dump();
    return WrittenTokenizer::Whole;
  }

private:
  void put(const char* key, io::GgufValue value) {
    metadata_[std::string("tokenizer.ggml.") + key] = std::move(value);
  }

  void list_tokens(std::size_t vocabulary) {
    const std::size_t count = std::max(vocabulary, tokenizer_.size());
    std::set<std::string> seen;
    for (std::size_t i = 0; i < count; ++i)
      if (auto text = tokenizer_.token_of(static_cast<std::int32_t>(i))) {
        if (!seen.insert(*text).second)
          fail(ErrorKind::Unsupported, "{}: '{}' is the text of two tokens; a GGUF file has one",
               path_.string(), *text);
        tokens_.push_back(std::move(*text));
        types_.push_back(kNormal);
      } else {
        tokens_.emplace_back();
        types_.push_back(kUnused);
      }
    for (std::size_t i = 0; i < count; ++i)
      if (types_[i] == kUnused)
        for (tokens_[i] = fmt::format("[PAD{}]", i); !seen.insert(tokens_[i]).second;)
          tokens_[i] += "_";
    for (const json& added : part(file_, "added_tokens"))
      types_.at(added.at("id").get<std::size_t>()) =
          added.value("special", false) ? kControl : kUserDefined;
    for (std::size_t i = 0; i < count; ++i)
      ids_.emplace(tokens_[i], i);
  }

  /// The merges of the file as pairs of texts.
  static std::vector<std::pair<std::string, std::string>> merges_of(const json& model) {
    std::vector<std::pair<std::string, std::string>> merges;
    for (const json& merge : part(model, "merges"))
      if (merge.is_array()) {
        merges.emplace_back(merge.at(0), merge.at(1));
      } else {
        const std::string text = merge;
        const std::size_t space = text.find(' ');
        merges.emplace_back(text.substr(0, space), text.substr(space + 1));
      }
    return merges;
  }

  /// Whether texts separated by a space say the merges.
  bool put_merges(const std::vector<std::pair<std::string, std::string>>& merges) {
    std::vector<std::string> lines;
    for (const auto& [left, right] : merges) {
      if (left.find(' ') != std::string::npos || right.find(' ') != std::string::npos)
        return false;
      lines.push_back(left + " " + right);
    }
    put("merges", std::move(lines));
    return true;
  }

  bool put_byte_level(const json& model) {
    put("model", "gpt2");
    const WordPattern* words = word_pattern(file_);
    if (words != nullptr)
      put("pre", words->name);
    return put_merges(merges_of(model)) && words != nullptr;
  }

  bool put_scored(const json& model) {
    put("model", "llama");
    const auto merges = merges_of(model);
    std::vector<double> scores;
    for (std::size_t i = 0; i < tokens_.size(); ++i) // those that nothing merges into come last
      scores.push_back(-static_cast<double>(merges.size() + i));
    for (std::size_t i = merges.size(); i-- > 0;)
      if (const auto at = ids_.find(merges[i].first + merges[i].second); at != ids_.end())
        scores[at->second] = -static_cast<double>(i);
    for (std::size_t i = 0; i < tokens_.size(); ++i)
      if (tokens_[i].size() == 6 && tokens_[i].starts_with("<0x") && tokens_[i].ends_with(">"))
        types_[i] = kByte;
    if (const json& unknown = part(model, "unk_token"); unknown.is_string())
      if (const auto at = ids_.find(unknown.get_ref<const std::string&>()); at != ids_.end())
        types_[at->second] = kUnknown;
    const auto by_scores = merges_by_scores(tokens_, types_, scores, ids_);
    const bool same =
        std::ranges::equal(by_scores, merges, [&](const auto& ids, const auto& texts) {
          return tokens_[ids.first] == texts.first && tokens_[ids.second] == texts.second;
        });
    put("scores", std::move(scores));
    const std::string normalizer = part(file_, "normalizer").dump();
    put("add_space_prefix", normalizer.find("Prepend") != std::string::npos ||
                                kind_of(part(file_, "pre_tokenizer")) == "Metaspace");
    return same || put_merges(merges);
  }

  /// The tokens of the ends; whether keys say what the post-processor puts around a text.
  bool put_ends() {
    const auto bare = tokenizer_.encode("a", false), all = tokenizer_.encode("a", true);
    const auto at = std::ranges::search(all, bare);
    std::vector<std::int32_t> before(all.begin(), at.begin()), behind(at.end(), all.end());
    std::optional<std::int32_t> begin = tokenizer_.special_id("bos_token"),
                                end = tokenizer_.special_id("eos_token");
    if (before.size() == 1 && !begin)
      begin = before[0];
    if (behind.size() == 1 && !end)
      end = behind[0];
    const auto add = [&](const char* key, const std::optional<std::int32_t>& id) {
      if (id)
        put(key, static_cast<std::int64_t>(*id));
    };
    add("bos_token_id", begin);
    add("eos_token_id", end);
    add("unknown_token_id", tokenizer_.special_id("unk_token"));
    add("padding_token_id", tokenizer_.special_id("pad_token"));
    put("add_bos_token", !before.empty());
    put("add_eos_token", !behind.empty());
    const auto is = [](const std::vector<std::int32_t>& ids, const auto& one) {
      return ids.empty() || (ids.size() == 1 && ids[0] == one);
    };
    return is(before, begin) && is(behind, end);
  }

  /// Ids and text again; nothing where a word has no token.
  using Read = std::optional<std::pair<std::vector<std::int32_t>, std::string>>;
  static Read read_by(const Tokenizer& tokenizer, const std::string& text) {
    try {
      auto ids = tokenizer.encode(text);
      std::string back = tokenizer.decode(ids, false);
      return std::pair(std::move(ids), std::move(back));
    } catch (const Error&) {
      return {};
    }
  }

  /// Whether the keys give the ids of the file for the probes, with special tokens among them.
  bool reads_the_same() const {
    const Tokenizer read = gguf_tokenizer(metadata_);
    std::vector<std::string> probes(kProbes.begin(), kProbes.end());
    for (std::size_t i = 0, used = 0; i < tokens_.size() && used < 8; ++i)
      if (types_[i] == kControl || types_[i] == kUserDefined) {
        probes.push_back(tokens_[i] + "a b " + tokens_[i] + " c" + tokens_[i] + "\nd");
        ++used;
      }
    return std::ranges::all_of(probes, [&](const std::string& text) {
      return read_by(read, text) == read_by(tokenizer_, text);
    });
  }

  io::GgufMetadata& metadata_;
  std::filesystem::path path_;
  Tokenizer tokenizer_;
  json file_;
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> types_;
  std::unordered_map<std::string_view, std::size_t> ids_; ///< of the tokens
};

} // namespace

WrittenTokenizer put_tokenizer(io::GgufMetadata& metadata, const std::filesystem::path& folder,
                               std::int64_t vocabulary) {
  if (!path_exists(folder / "tokenizer.json"))
    return WrittenTokenizer::None;
  return TokenizerKeys(metadata, folder, vocabulary).write();
}

} // namespace egret::models::language

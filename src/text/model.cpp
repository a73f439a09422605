#include "text/model.h"

#include "support/fail.h"
#include "support/printable.h"
#include "text/utf8.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace egret::text {

void Model::read_vocabulary(const Field& vocab) {
  if (!vocab.value().is_object())
    vocab.refuse("an object of tokens and their ids is needed");
  for (const auto& [token, id] : vocab.value().items()) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() >= static_cast<std::uint64_t>(kMostIds))
      vocab.refuse(fmt::format("the id of '{}' is not an integer from 0 to {}", printable(token),
                               kMostIds - 1));
    if (!vocabulary_.add(token, id.get<Id>()))
      vocab.refuse(fmt::format("two tokens have the id {}, one of them '{}'", id.get<Id>(),
                               printable(token)));
  }
}

std::vector<Id> byte_tokens(const Vocabulary& vocabulary) {
  std::vector<Id> ids;
  ids.reserve(256);
  for (int byte = 0; byte < 256; ++byte)
    ids.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)).value_or(-1));
  return ids;
}

bool append_byte_tokens(std::string_view text, const std::vector<Id>& bytes, std::vector<Id>& out) {
  auto id = [&](char c) { return bytes[static_cast<unsigned char>(c)]; };
  if (!std::all_of(text.begin(), text.end(), [&](char c) { return id(c) >= 0; }))
    return false;
  for (const char c : text)
    out.push_back(id(c));
  return true;
}

namespace {

/// Greedy longest match from the left (WordPiece, Schuster and Nakajima 2012).
class WordPiece final : public Model {
public:
  explicit WordPiece(const Field& model) {
    read_vocabulary(model["vocab"]);
    prefix_ = model.text_or("continuing_subword_prefix", "##");
    if (const auto most = model.find("max_input_chars_per_word"))
      most_ = static_cast<std::size_t>(most->integer(0, 1 << 20));
    unknown_name_ = model.text_or("unk_token", "[UNK]");
    unknown_ = vocabulary_.find(unknown_name_).value_or(-1);
    for (Id id = 0; id < vocabulary_.end(); ++id)
      longest_ = std::max(longest_, vocabulary_.token(id).value_or("").size());
    if (std::max(longest_, prefix_.size()) > kMostTokenBytes)
      model.refuse(fmt::format("a token or prefix of {} bytes; {} are the most",
                               std::max(longest_, prefix_.size()), kMostTokenBytes));
  }

  void tokenize(std::string_view piece, std::vector<Id>& out, ModelScratch&) const override {
    const std::size_t before = out.size();
    if (count_chars(piece) <= most_ && split(piece, out))
      return;
    if (unknown_ < 0)
      fail(ErrorKind::Value,
           "tokenizer: a word is not in the vocabulary, nor is the unknown token '{}'",
           printable(unknown_name_));
    out.resize(before);
    out.push_back(unknown_);
  }

private:
  bool split(std::string_view piece, std::vector<Id>& out) const {
    std::string candidate;
    for (std::size_t begin = 0; begin < piece.size();) {
      candidate = begin > 0 ? prefix_ : "";
      const std::size_t lead = candidate.size();
      candidate += piece.substr(begin, longest_);
      std::size_t end = begin + candidate.size() - lead;
      while (end < piece.size() && end > begin &&
             (static_cast<unsigned char>(piece[end]) & 0xc0) == 0x80)
        --end; // back to the start of a character
      std::optional<Id> found;
      while (end > begin) {
        candidate.resize(lead + end - begin);
        if ((found = vocabulary_.find(candidate)))
          break;
        end = previous_char(piece, end);
      }
      if (!found)
        return false;
      out.push_back(*found);
      begin = end;
    }
    return true;
  }

  std::string prefix_, unknown_name_;
  std::size_t most_ = 100, longest_ = 0;
  Id unknown_ = -1;
};

class WordLevel final : public Model {
public:
  explicit WordLevel(const Field& model) {
    read_vocabulary(model["vocab"]);
    unknown_name_ = model.text_or("unk_token", "<unk>");
    unknown_ = vocabulary_.find(unknown_name_).value_or(-1);
  }

  void tokenize(std::string_view piece, std::vector<Id>& out, ModelScratch&) const override {
    const Id id = vocabulary_.find(piece).value_or(unknown_);
    if (id < 0)
      fail(ErrorKind::Value,
           "tokenizer: '{}' is not in the vocabulary, nor is the unknown token '{}'",
           printable(piece), printable(unknown_name_));
    out.push_back(id);
  }

private:
  std::string unknown_name_;
  Id unknown_ = -1;
};

} // namespace

std::unique_ptr<Model> make_word_piece(const Field& model) {
  return std::make_unique<WordPiece>(model);
}
std::unique_ptr<Model> make_word_level(const Field& model) {
  return std::make_unique<WordLevel>(model);
}

std::unique_ptr<Model> make_model(const Field& model) {
  // Old files have no type: merges or the kind of the vocabulary tell.
  std::string type = model.text_or("type", "");
  if (type.empty() && model.find("vocab"))
    type = model.find("merges")                ? "BPE"
           : model["vocab"].value().is_array() ? "Unigram"
                                               : "WordPiece";
  if (type == "BPE")
    return make_bpe(model);
  if (type == "Unigram")
    return make_unigram(model);
  if (type == "WordPiece")
    return make_word_piece(model);
  if (type == "WordLevel")
    return make_word_level(model);
  model.unknown(type, "BPE, Unigram, WordPiece, WordLevel");
}

} // namespace egret::text

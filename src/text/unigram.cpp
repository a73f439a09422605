// The unigram language model (Kudo 2018): the segmentation of the highest likelihood, by Viterbi's
// algorithm.
#include "text/model.h"
#include "text/utf8.h"

#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace egret::text {

namespace {

constexpr double kUnknownPenalty = 10; ///< below the least likely token, as SentencePiece has it

struct UnigramScratch final : ModelScratch {
  struct Node {
    double score = 0;
    std::size_t begin = kNone; ///< of the token that ends here
    Id id = 0;
    static constexpr std::size_t kNone = ~std::size_t{0};
  };
  std::vector<Node> best; ///< by byte position
  struct Part {
    std::size_t begin, end;
  };
  std::vector<Part> path;
};

class Unigram final : public Model {
public:
  explicit Unigram(const Field& model) {
    const std::vector<Field> entries = model["vocab"].items();
    if (entries.size() >= static_cast<std::size_t>(kMostIds))
      model.refuse(fmt::format("a vocabulary of {} tokens", entries.size()));
    double least = std::numeric_limits<double>::infinity();
    for (const Field& entry : entries) {
      const auto& pair = entry.value();
      if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string())
        entry.refuse("a token and its score are needed");
      const double score = Field(pair[1], entry.path() + "[1]").number();
      const auto& token = pair[0].get_ref<const std::string&>();
      if (token.size() > kMostTokenBytes)
        entry.refuse(
            fmt::format("a token of {} bytes; {} are the most", token.size(), kMostTokenBytes));
      const auto id = static_cast<Id>(scores_.size());
      if (!vocabulary_.add(token, id))
        entry.refuse(fmt::format("the token '{}' is there twice", printable(token)));
      trie_.add(token, static_cast<std::uint32_t>(id));
      scores_.push_back(score);
      least = std::min(least, score);
    }
    unknown_score_ = least - kUnknownPenalty;
    if (const auto unknown = model.find("unk_id")) {
      if (scores_.empty())
        unknown->refuse("there are no tokens");
      unknown_ =
          static_cast<Id>(unknown->integer(0, static_cast<std::int64_t>(scores_.size()) - 1));
    }
    if (model.flag_or("byte_fallback", false))
      bytes_ = byte_tokens(vocabulary_);
  }

  std::unique_ptr<ModelScratch> scratch() const override {
    return std::make_unique<UnigramScratch>();
  }

  void tokenize(std::string_view piece, std::vector<Id>& out, ModelScratch& any) const override {
    auto& s = static_cast<UnigramScratch&>(any);
    search(piece, s.best);
    // Unknown tokens in a row are one.
    s.path.clear();
    bool was_unknown = false;
    for (std::size_t end = piece.size(); end > 0;) {
      const UnigramScratch::Node& node = s.best[end];
      const bool unknown = node.id == unknown_;
      if (unknown && was_unknown)
        s.path.back().begin = node.begin;
      else
        s.path.push_back({node.begin, end});
      was_unknown = unknown;
      end = node.begin;
    }
    for (auto part = s.path.rbegin(); part != s.path.rend(); ++part) {
      const std::string_view text = piece.substr(part->begin, part->end - part->begin);
      if (const auto id = vocabulary_.find(text))
        out.push_back(*id);
      else if (bytes_.empty() || !append_byte_tokens(text, bytes_, out))
        out.push_back(known_unknown(text));
    }
  }

private:
  void search(std::string_view piece, std::vector<UnigramScratch::Node>& best) const {
    best.assign(piece.size() + 1, {});
    auto offer = [&](std::size_t begin, std::size_t end, double score, Id id) {
      UnigramScratch::Node& node = best[end];
      if (node.begin == UnigramScratch::Node::kNone || score > node.score)
        node = {score, begin, id};
    };
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t character = utf8_length(piece[at]);
      const double before = best[at].score;
      bool single = false; // a token of one character begins here
      trie_.prefixes(piece.substr(at), [&](std::size_t bytes, std::uint32_t id) {
        offer(at, at + bytes, scores_[id] + before, static_cast<Id>(id));
        single = single || bytes == character;
      });
      if (!single)
        offer(at, at + character, unknown_score_ + before,
              known_unknown(piece.substr(at, character)));
      at += character;
    }
  }

  Id known_unknown(std::string_view text) const {
    if (unknown_ < 0)
      fail(ErrorKind::Value,
           "tokenizer: '{}' is not in the vocabulary and there is no unknown token",
           printable(text));
    return unknown_;
  }

  Trie trie_;
  std::vector<double> scores_;
  std::vector<Id> bytes_;
  double unknown_score_ = 0;
  Id unknown_ = -1;
};

} // namespace

std::unique_ptr<Model> make_unigram(const Field& model) {
  return std::make_unique<Unigram>(model);
}

} // namespace egret::text

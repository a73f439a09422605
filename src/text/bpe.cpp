// Byte-pair encoding (Sennrich et al. 2016): the adjacent pair whose merge has the lowest rank is
// merged, the leftmost first, until no pair can be.
#include "text/model.h"
#include "text/utf8.h"

#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <queue>

namespace egret::text {

namespace {

constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

struct Merge {
  std::uint32_t rank = kNever;
  Id made = 0;
};

/// Words that were met, with their tokens: a direct-mapped cache of fixed size.
class WordCache {
public:
  static constexpr std::size_t kMostBytes = 23, kMostIds = 7;
  struct Entry {
    std::uint8_t bytes = 0, ids = 0;
    char word[kMostBytes] = {};
    std::array<Id, kMostIds> tokens = {};
  };

  Entry& entry(std::string_view word) {
    std::uint64_t low = 0, high = 0, end = 0;
    if (word.size() >= 8) {
      std::memcpy(&low, word.data(), 8);
      std::memcpy(&end, word.data() + word.size() - 8, 8);
      if (word.size() > 16)
        std::memcpy(&high, word.data() + 8, 8);
    } else {
      std::memcpy(&low, word.data(), word.size());
    }
    std::uint64_t h = (low ^ word.size()) * 0x9e3779b97f4a7c15U;
    h = (h ^ h >> 32 ^ end) * 0xbf58476d1ce4e5b9U;
    h = (h ^ h >> 29 ^ high) * 0x94d049bb133111ebU;
    return entries_[h >> (64 - kBits)];
  }

private:
  static constexpr unsigned kBits = 15;
  std::vector<Entry> entries_ = std::vector<Entry>(std::size_t{1} << kBits);
};

struct BpeScratch final : ModelScratch {
  struct Symbol {
    Id id;
    std::uint32_t previous, next; ///< positions; kNever at the ends
    bool alive;
  };
  struct Candidate {
    std::uint32_t rank, at;
    Id made;
    bool operator>(const Candidate& o) const { return rank != o.rank ? rank > o.rank : at > o.at; }
  };
  WordCache cache;
  std::vector<Id> ids;
  std::vector<Merge> merges;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

class Bpe final : public Model {
public:
  explicit Bpe(const Field& model) {
    if (const auto dropout = model.find("dropout"); dropout && dropout->number() != 0)
      fail(ErrorKind::Unsupported, "{}: {}: dropout makes tokens random; set it to null",
           dropout->path(), dropout->number());
    read_vocabulary(model["vocab"]);
    prefix_ = model.text_or("continuing_subword_prefix", "");
    suffix_ = model.text_or("end_of_word_suffix", "");
    fuse_unknown_ = model.flag_or("fuse_unk", false);
    ignore_merges_ = model.flag_or("ignore_merges", false);
    if (model.flag_or("byte_fallback", false))
      bytes_ = byte_tokens(vocabulary_);
    if (const auto unknown = model.find("unk_token")) {
      has_unknown_ = true;
      unknown_name_ = unknown->text();
      unknown_ = vocabulary_.find(unknown_name_).value_or(-1);
    }
    read_merges(model["merges"]);
    if (prefix_.empty() && suffix_.empty())
      for (char32_t c = 0; c < low_.size(); ++c) {
        std::string one;
        append_char(one, c);
        low_[c] = vocabulary_.find(one).value_or(-1);
      }
  }

  std::unique_ptr<ModelScratch> scratch() const override { return std::make_unique<BpeScratch>(); }

  void tokenize(std::string_view piece, std::vector<Id>& out, ModelScratch& any) const override {
    auto& scratch = static_cast<BpeScratch&>(any);
    if (piece.size() > WordCache::kMostBytes)
      return compute(piece, out, scratch);
    WordCache::Entry& entry = scratch.cache.entry(piece);
    if (entry.bytes == piece.size() && std::memcmp(entry.word, piece.data(), piece.size()) == 0) {
      out.insert(out.end(), entry.tokens.begin(), entry.tokens.begin() + entry.ids);
      return;
    }
    const std::size_t before = out.size();
    compute(piece, out, scratch);
    const std::size_t count = out.size() - before;
    if (count > WordCache::kMostIds)
      return;
    entry.bytes = static_cast<std::uint8_t>(piece.size());
    entry.ids = static_cast<std::uint8_t>(count);
    std::memcpy(entry.word, piece.data(), piece.size());
    std::copy(out.begin() + static_cast<std::ptrdiff_t>(before), out.end(), entry.tokens.begin());
  }

private:
  void read_merges(const Field& merges) {
    const nlohmann::json& list = merges.value();
    if (!list.is_array())
      merges.refuse("an array of merges is needed");
    merges_ = KeyTable(list.size());
    std::string made;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const auto [a, b] = read_merge(merges, i);
      auto id = [&](std::string_view token) {
        const auto found = vocabulary_.find(token);
        if (!found)
          merges.refuse(fmt::format("[{}]: '{}' is not in the vocabulary", i, printable(token)));
        return *found;
      };
      if (!b.starts_with(prefix_))
        merges.refuse(
            fmt::format("[{}]: '{}' lacks the prefix '{}'", i, printable(b), printable(prefix_)));
      made.assign(a).append(b.substr(prefix_.size()));
      const Id left = id(a), right = id(b);
      const std::uint64_t value =
          static_cast<std::uint64_t>(i) << 32 | static_cast<std::uint32_t>(id(made));
      // The last merge of a pair counts.
      if (const auto [place, fresh] = merges_.insert(key(left, right), value); !fresh)
        *place = value;
    }
  }

  static std::pair<std::string_view, std::string_view> read_merge(const Field& merges,
                                                                  std::size_t i) {
    const nlohmann::json& merge = merges.value()[i];
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
    if (merge.is_string()) {
      const std::string_view both = merge.get_ref<const std::string&>();
      const std::size_t space = both.find(' ');
      if (space != std::string_view::npos && both.find(' ', space + 1) == std::string_view::npos)
        return {both.substr(0, space), both.substr(space + 1)};
    }
    merges.refuse(fmt::format("[{}]: a merge is two tokens, as ['a', 'b'] or 'a b'", i));
  }

  static std::uint64_t key(Id a, Id b) {
    return static_cast<std::uint64_t>(a) << 32 | static_cast<std::uint32_t>(b);
  }
  Merge merge_of(Id a, Id b) const {
    const std::uint64_t* found = merges_.find(key(a, b));
    return found == nullptr ? Merge{}
                            : Merge{static_cast<std::uint32_t>(*found >> 32),
                                    static_cast<Id>(static_cast<std::uint32_t>(*found))};
  }

  void compute(std::string_view piece, std::vector<Id>& out, BpeScratch& s) const {
    if (ignore_merges_) {
      if (const auto whole = vocabulary_.find(piece)) {
        out.push_back(*whole);
        return;
      }
    }
    s.ids.clear();
    characters(piece, s.ids);
    if (s.ids.size() <= kFew)
      merge_few(s);
    else
      merge_many(s);
    out.insert(out.end(), s.ids.begin(), s.ids.end());
  }

  /// The tokens of the single characters.
  void characters(std::string_view piece, std::vector<Id>& ids) const {
    bool pending = false; // an unknown token that those after it may join
    auto flush = [&] {
      if (pending)
        ids.push_back(unknown_);
      pending = false;
    };
    std::string decorated;
    for (std::size_t at = 0; at < piece.size();) {
      const std::size_t begin = at;
      const char32_t c = next_char(piece, at);
      std::string_view token = piece.substr(begin, at - begin);
      std::optional<Id> id;
      if (!prefix_.empty() || !suffix_.empty()) {
        decorated.assign(begin > 0 ? prefix_ : "")
            .append(token)
            .append(at == piece.size() ? suffix_ : "");
        token = decorated;
        id = vocabulary_.find(token);
      } else if (c < low_.size()) {
        if (low_[c] >= 0)
          id = low_[c];
      } else {
        id = vocabulary_.find(token);
      }
      if (id) {
        flush();
        ids.push_back(*id);
      } else if (!bytes_.empty() && append_byte_tokens(token, bytes_, ids)) {
        continue;
      } else if (has_unknown_) {
        if (unknown_ < 0)
          fail(ErrorKind::Value,
               "tokenizer: '{}' is not in the vocabulary, nor is the unknown token '{}'",
               printable(token), printable(unknown_name_));
        if (!fuse_unknown_)
          flush();
        pending = true;
      }
    }
    flush();
  }

  /// By looking for the best pair in all of them: fastest for words.
  void merge_few(BpeScratch& s) const {
    std::vector<Id>& ids = s.ids;
    if (ids.size() < 2)
      return;
    s.merges.resize(ids.size() - 1);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i)
      s.merges[i] = merge_of(ids[i], ids[i + 1]);
    std::size_t pairs = s.merges.size();
    while (pairs > 0) {
      std::size_t best = 0;
      for (std::size_t i = 1; i < pairs; ++i)
        if (s.merges[i].rank < s.merges[best].rank)
          best = i;
      if (s.merges[best].rank == kNever)
        break;
      ids[best] = s.merges[best].made;
      std::move(ids.begin() + static_cast<std::ptrdiff_t>(best) + 2,
                ids.begin() + static_cast<std::ptrdiff_t>(pairs) + 1,
                ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      std::move(s.merges.begin() + static_cast<std::ptrdiff_t>(best) + 1,
                s.merges.begin() + static_cast<std::ptrdiff_t>(pairs),
                s.merges.begin() + static_cast<std::ptrdiff_t>(best));
      --pairs;
      if (best > 0)
        s.merges[best - 1] = merge_of(ids[best - 1], ids[best]);
      if (best < pairs)
        s.merges[best] = merge_of(ids[best], ids[best + 1]);
    }
    ids.resize(pairs + 1);
  }

  /// By a heap of pairs over a linked list: n log n for a text that is one piece.
  void merge_many(BpeScratch& s) const {
    auto& symbols = s.symbols;
    auto& heap = s.heap;
    symbols.clear();
    heap.clear();
    const auto count = static_cast<std::uint32_t>(s.ids.size());
    for (std::uint32_t i = 0; i < count; ++i)
      symbols.push_back({s.ids[i], i == 0 ? kNever : i - 1, i + 1 == count ? kNever : i + 1, true});
    auto candidate = [&](std::uint32_t at) -> BpeScratch::Candidate {
      const Merge m = merge_of(symbols[at].id, symbols[symbols[at].next].id);
      return {m.rank, at, m.made};
    };
    for (std::uint32_t i = 0; i + 1 < count; ++i)
      if (const auto c = candidate(i); c.rank != kNever)
        heap.push_back(c);
    const std::greater<> later;
    std::make_heap(heap.begin(), heap.end(), later);
    auto push = [&](std::uint32_t at) {
      if (const auto c = candidate(at); c.rank != kNever) {
        heap.push_back(c);
        std::push_heap(heap.begin(), heap.end(), later);
      }
    };
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end(), later);
      const auto top = heap.back();
      heap.pop_back();
      auto& left = symbols[top.at];
      if (!left.alive || left.next == kNever)
        continue;
      if (const auto now = candidate(top.at); now.rank != top.rank || now.made != top.made)
        continue; // one of the two has merged since
      auto& right = symbols[left.next];
      right.alive = false;
      left.id = top.made;
      left.next = right.next;
      if (right.next != kNever)
        symbols[right.next].previous = top.at;
      if (left.previous != kNever)
        push(left.previous);
      if (left.next != kNever)
        push(top.at);
    }
    s.ids.clear();
    for (const auto& symbol : symbols)
      if (symbol.alive)
        s.ids.push_back(symbol.id);
  }

  static constexpr std::size_t kFew = 64;
  KeyTable merges_; ///< a pair of ids to its rank and the id that it makes
  std::array<Id, 0x400> low_ =
      {};                 ///< tokens of characters below U+0400, where there are no affixes
  std::vector<Id> bytes_; ///< with byte fallback
  std::string prefix_, suffix_, unknown_name_;
  Id unknown_ = -1;
  bool has_unknown_ = false, fuse_unknown_ = false, ignore_merges_ = false;
};

} // namespace

std::unique_ptr<Model> make_bpe(const Field& model) {
  return std::make_unique<Bpe>(model);
}

} // namespace egret::text

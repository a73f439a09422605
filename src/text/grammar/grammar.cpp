// Grammars, and the tokens of a vocabulary that continue a text by one.
#include "egret/grammar.h"

#include "egret/tokenizer.h"
#include "support/fail.h"
#include "support/printable.h"
#include "text/grammar/automaton.h"
#include "text/tables.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>

namespace egret {

using namespace text::grammar;

struct Grammar::Impl {
  Automaton automaton;
};

struct TokenTexts::Impl {
  struct Token {
    text::Id id;
    std::uint32_t common; ///< bytes at its beginning that it shares with the token before
    std::string bytes;
  };
  std::vector<Token> tokens;        ///< by their bytes, none of them empty
  std::vector<std::uint32_t> index; ///< into tokens, by id; kNone for none
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  ByteSet bytes() const {
    ByteSet all;
    for (const Token& token : tokens)
      for (const char c : token.bytes)
        all.set(static_cast<std::uint8_t>(c));
    return all;
  }
};

namespace {

/// Stacks from which those that are no longer needed are forgotten.
constexpr std::size_t kMostStacks = std::size_t{1} << 18;

using Words = std::vector<std::uint64_t>;
using Token = std::uint32_t; ///< index into TokenTexts::Impl::tokens

void set_bit(std::span<std::uint64_t> words, text::Id id) {
  words[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<unsigned>(id) % 64);
}
bool bit(std::span<const std::uint64_t> words, text::Id id) {
  return (words[static_cast<std::size_t>(id) / 64] >> (static_cast<unsigned>(id) % 64) & 1U) != 0;
}

/// What the tokens of a vocabulary can write of a grammar; Error(Value) where that is nothing.
Automaton written_with(const ByteSet& bytes, const Automaton& grammar) {
  Automaton out = restricted(grammar, bytes);
  if (has_texts(out))
    return out;
  Stacks stacks;
  const Front start = Runner(grammar).start(stacks);
  std::string begins; // the only byte that a text may begin with, where there is one
  if (start.ways.size() == 1 &&
      grammar.code[start.ways[0].address].low == grammar.code[start.ways[0].address].high)
    begins.push_back(static_cast<char>(grammar.code[start.ways[0].address].low));
  if (!begins.empty() && !bytes[static_cast<std::uint8_t>(begins[0])])
    fail(ErrorKind::Value,
         "grammar: its texts begin with '{}', which no token of the vocabulary has",
         printable(begins));
  fail(ErrorKind::Value, "grammar: the tokens of the vocabulary cannot write any text of it");
}

/// Which tokens may follow ways of one stack, as far as that can be said without what is on it.
struct Mask {
  Words allowed;               ///< bit by id
  std::vector<Token> by_stack; ///< those that come to the end of the rule before their own end
};

/// Fronts over stacks whose lower part is not known, with their steps: a deterministic automaton
/// that is made as it is needed. `ends` says that a way goes on below what is known.
class LocalFronts {
public:
  explicit LocalFronts(const Automaton& automaton) : runner_(automaton) {}

  std::uint32_t number_of(Front front) {
    const auto [at, fresh] =
        numbers_.emplace(key_of(front), static_cast<std::uint32_t>(fronts_.size()));
    if (fresh) {
      ways_ += front.ways.size();
      fronts_.push_back(std::move(front));
    }
    return at->second;
  }
  std::uint32_t step(std::uint32_t from, std::uint8_t byte) {
    const std::uint64_t key = std::uint64_t{from} << 8U | byte;
    if (const std::uint64_t* known = steps_.find(key))
      return static_cast<std::uint32_t>(*known);
    const std::uint32_t to = number_of(runner_.step(fronts_[from], byte, stacks_));
    steps_.insert(key, to);
    return to;
  }
  const Front& operator[](std::uint32_t number) const { return fronts_[number]; }
  void set_budget(std::uint64_t visits) { runner_.set_budget(visits); }
  /// About how much is kept, in fronts of 16 ways.
  std::size_t size() const { return fronts_.size() + (ways_ + stacks_.size()) / 16; }

private:
  static std::u32string key_of(const Front& front) {
    std::u32string key(1, front.ends ? U'e' : U'-');
    for (const Way& way : front.ways)
      key.append({static_cast<char32_t>(way.address), static_cast<char32_t>(way.stack)});
    return key;
  }
  Runner runner_;
  Stacks stacks_;
  std::map<std::u32string, std::uint32_t> numbers_;
  std::vector<Front> fronts_;
  std::size_t ways_ = 0; ///< of all fronts
  text::KeyTable steps_; ///< a front's number and a byte to a front's number
};

} // namespace

Grammar Grammar::parse(std::string_view gbnf, const std::string& name) {
  Grammar out;
  out.impl_ = std::make_shared<const Impl>(Impl{compiled(parse_gbnf(gbnf, name), name)});
  return out;
}

Grammar Grammar::of_schema(std::string_view json_schema, const std::string& name,
                           std::string_view before, std::string_view after) {
  Rules rules = rules_of_schema(json_schema, name);
  if (!before.empty() || !after.empty()) { // the schema itself may refer to its root
    rules.rules.push_back(
        {"JSON", sequence({literal(before), reference(rules.root), literal(after)})});
    rules.root = rules.rules.size() - 1;
  }
  Grammar out;
  out.impl_ = std::make_shared<const Impl>(Impl{compiled(rules, name)});
  return out;
}

Grammar Grammar::json_object() {
  return of_schema(R"({"type":"object"})", "JSON");
}

bool Grammar::matches(std::string_view text) const {
  Runner runner(impl_->automaton);
  Stacks stacks;
  Front front = runner.start(stacks);
  for (const char c : text) {
    runner.set_budget(kMostVisits);
    front = runner.step(front, static_cast<std::uint8_t>(c), stacks);
  }
  return front.ends;
}

TokenTexts::TokenTexts(const Tokenizer& tokenizer) {
  auto made = std::make_shared<Impl>();
  const auto count = static_cast<text::Id>(tokenizer.size());
  for (text::Id id = 0; id < count; ++id)
    if (auto bytes = tokenizer.bytes_of(id); bytes && !bytes->empty())
      made->tokens.push_back({id, 0, std::move(*bytes)});
  auto& tokens = made->tokens;
  std::ranges::stable_sort(tokens, {}, &Impl::Token::bytes);
  made->index.assign(tokenizer.size(), Impl::kNone);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    made->index[static_cast<std::size_t>(tokens[i].id)] = static_cast<std::uint32_t>(i);
    if (i > 0)
      tokens[i].common = static_cast<std::uint32_t>(
          std::ranges::mismatch(tokens[i].bytes, tokens[i - 1].bytes).in1 -
          tokens[i].bytes.begin());
  }
  impl_ = std::move(made);
}

struct TokenGrammar::Impl {
  Impl(Grammar g, TokenTexts t)
      : grammar(std::move(g)), texts(std::move(t)),
        written(written_with(texts.impl_->bytes(), grammar.impl_->automaton)),
        locals(std::in_place, written) {}

  const Automaton& automaton() const { return written; }
  std::size_t words() const { return (texts.impl_->index.size() + 63) / 64; }

  /// Of ways, given by their addresses, that have one stack.
  std::shared_ptr<const Mask> mask(const std::vector<Address>& addresses) const {
    constexpr std::size_t kMostMasks = 1024, kMostFronts = 16384, kMostBytes = 64 << 20;
    const std::lock_guard lock(mutex);
    const auto found = masks.find(addresses);
    if (found != masks.end())
      return found->second;
    std::shared_ptr<const Mask> made;
    try {
      made = std::make_shared<const Mask>(work_out(addresses));
    } catch (...) { // too many steps: nothing of them is kept
      locals.emplace(automaton());
      throw;
    }
    if (locals->size() > kMostFronts)
      locals.emplace(automaton());
    const std::size_t bytes = made->allowed.size() * sizeof(made->allowed[0]) +
                              made->by_stack.size() * sizeof(made->by_stack[0]);
    if (masks.size() == kMostMasks || mask_bytes + bytes > kMostBytes) {
      masks.clear();
      mask_bytes = 0;
    }
    mask_bytes += bytes;
    masks.emplace(addresses, made);
    return made;
  }

  Mask work_out(const std::vector<Address>& addresses) const {
    LocalFronts& fronts = *locals;
    Mask out{Words(words()), {}};
    Front start;
    for (const Address address : addresses)
      start.ways.push_back({address, Stacks::kBottom});
    fronts.set_budget(kMostMaskVisits);
    // Of the first bytes of a token, one more each: the front behind them, and whether a way has
    // left what is known by then.
    std::vector<std::uint32_t> path = {fronts.number_of(std::move(start))};
    std::vector<bool> left = {false};
    const auto& tokens = texts.impl_->tokens;
    for (Token i = 0; i < tokens.size(); ++i) {
      const std::string& bytes = tokens[i].bytes;
      path.resize(std::min<std::size_t>(path.size(), tokens[i].common + 1));
      left.resize(path.size());
      while (path.size() <= bytes.size() && !fronts[path.back()].ways.empty()) {
        path.push_back(fronts.step(path.back(), static_cast<std::uint8_t>(bytes[path.size() - 1])));
        left.push_back(left.back() || fronts[path.back()].ends);
      }
      const bool whole = path.size() == bytes.size() + 1;
      if (whole && fronts[path.back()].alive())
        set_bit(out.allowed, tokens[i].id);
      else if (left[whole ? bytes.size() - 1 : path.size() - 1])
        out.by_stack.push_back(i);
    }
    return out;
  }

  const Grammar grammar;
  const TokenTexts texts;
  const Automaton written;  ///< what the vocabulary can write of the grammar
  mutable std::mutex mutex; ///< of what follows
  mutable std::optional<LocalFronts> locals;
  mutable std::map<std::vector<Address>, std::shared_ptr<const Mask>> masks;
  mutable std::size_t mask_bytes = 0;
};

TokenGrammar::TokenGrammar(Grammar grammar, TokenTexts texts)
    : impl_(std::make_shared<const Impl>(std::move(grammar), std::move(texts))) {}

struct GrammarMatcher::State {
  explicit State(std::shared_ptr<const TokenGrammar::Impl> of)
      : grammar(std::move(of)), runner(grammar->automaton()), front(runner.start(stacks)) {}

  /// Allows those of some tokens that may follow ways of one stack.
  void check(const Front& ways, const std::vector<Token>& tokens, std::span<std::uint64_t> words) {
    const auto& all = grammar->texts.impl_->tokens;
    std::vector<Front> path = {ways};
    const std::string* before = nullptr;
    for (const Token token : tokens) {
      const std::string& bytes = all[token].bytes;
      if (bit(words, all[token].id))
        continue;
      if (before != nullptr) {
        const auto common =
            static_cast<std::size_t>(std::ranges::mismatch(bytes, *before).in1 - bytes.begin());
        path.resize(std::min(path.size(), common + 1));
      }
      before = &bytes;
      while (path.size() <= bytes.size() && !path.back().ways.empty()) {
        const auto byte = static_cast<std::uint8_t>(bytes[path.size() - 1]);
        path.push_back(runner.step(path.back(), byte, stacks));
      }
      if (path.size() == bytes.size() + 1 && path.back().alive())
        set_bit(words, all[token].id);
    }
  }

  /// Forgets stacks that no way has any more.
  void compact() {
    Stacks fresh;
    for (Way& way : front.ways) {
      std::vector<Address> addresses;
      for (Stacks::Id at = way.stack; at != Stacks::kBottom; at = stacks.below(at))
        addresses.push_back(stacks.top(at));
      way.stack = Stacks::kBottom;
      for (auto address = addresses.rbegin(); address != addresses.rend(); ++address)
        way.stack = fresh.push(way.stack, *address);
    }
    std::ranges::sort(front.ways);
    stacks = std::move(fresh);
  }

  std::shared_ptr<const TokenGrammar::Impl> grammar;
  Runner runner;
  Stacks stacks;
  Front front;
};

GrammarMatcher::GrammarMatcher(const TokenGrammar& grammar)
    : state_(std::make_unique<State>(grammar.impl_)) {}
GrammarMatcher::~GrammarMatcher() = default;
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;

bool GrammarMatcher::may_end() const noexcept {
  return state_->front.ends;
}

void GrammarMatcher::allow(std::span<std::uint64_t> words) {
  State& s = *state_;
  std::map<Stacks::Id, Front> by_stack;
  for (const Way& way : s.front.ways)
    by_stack[way.stack].ways.push_back(way);
  Words all(s.grammar->words());
  std::vector<std::pair<const Front*, std::shared_ptr<const Mask>>> open;
  for (const auto& [stack, ways] : by_stack) {
    std::vector<Address> addresses;
    for (const Way& way : ways.ways)
      addresses.push_back(way.address);
    auto mask = s.grammar->mask(addresses);
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i] |= mask->allowed[i];
    if (!mask->by_stack.empty())
      open.emplace_back(&ways, std::move(mask));
  }
  s.runner.set_budget(kMostMaskVisits);
  for (const auto& [ways, mask] : open)
    s.check(*ways, mask->by_stack, all);
  std::copy_n(all.begin(), std::min(all.size(), words.size()), words.begin());
  if (s.stacks.size() > kMostStacks)
    s.compact();
}

bool GrammarMatcher::take(std::int32_t token) {
  State& s = *state_;
  const TokenTexts::Impl& texts = *s.grammar->texts.impl_;
  const auto id = static_cast<std::size_t>(token);
  if (token < 0 || id >= texts.index.size() || texts.index[id] == TokenTexts::Impl::kNone)
    return false;
  s.runner.set_budget(kMostVisits);
  Front next = s.front;
  for (const char c : texts.tokens[texts.index[id]].bytes)
    next = s.runner.step(next, static_cast<std::uint8_t>(c), s.stacks);
  if (!next.alive())
    return false;
  s.front = std::move(next);
  if (s.stacks.size() > kMostStacks)
    s.compact();
  return true;
}

} // namespace egret

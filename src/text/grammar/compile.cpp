// From rules to instructions: Thompson's construction for each rule, from its end to its beginning.
#include "support/fail.h"
#include "support/overloaded.h"
#include "support/printable.h"
#include "text/grammar/automaton.h"
#include "text/utf8.h"

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace egret::text::grammar {

namespace {

constexpr std::size_t kMostInstructions = 200'000;
/// Copies of a repeated body become calls of a rule of its own where the program would grow beyond
/// this. What follows a call depends on the stack, so that less is known of tokens beforehand.
constexpr std::size_t kMostCopied = kMostInstructions / 2;

struct Bytes {
  std::uint8_t low, high;
};
using ByteRanges = std::vector<Bytes>; ///< of each byte of a character

/// Characters as ranges of the bytes of UTF-8 (Thompson 1968; RE2's utf8 ranges). Surrogates are
/// left out.
void add_utf8(char32_t first, char32_t last, std::vector<ByteRanges>& out) {
  if (first > last)
    return;
  if (first <= 0xdfff && last >= 0xd800) {
    if (first < 0xd800)
      add_utf8(first, 0xd7ff, out);
    add_utf8(0xe000, last, out);
    return;
  }
  for (const char32_t most : {0x7fU, 0x7ffU, 0xffffU})
    if (first <= most && last > most) {
      add_utf8(first, most, out);
      add_utf8(most + 1, last, out);
      return;
    }
  for (unsigned bits = 6; last > 0x7f && bits <= 18; bits += 6) {
    const char32_t mask = (1U << bits) - 1;
    if ((first & ~mask) == (last & ~mask))
      continue;
    if ((first & mask) != 0) {
      add_utf8(first, first | mask, out);
      add_utf8((first | mask) + 1, last, out);
      return;
    }
    if ((last & mask) != mask) {
      add_utf8(first, (last & ~mask) - 1, out);
      add_utf8(last & ~mask, last, out);
      return;
    }
  }
  std::string low, high;
  append_char(low, first);
  append_char(high, last);
  ByteRanges bytes;
  for (std::size_t i = 0; i < low.size(); ++i)
    bytes.push_back({static_cast<std::uint8_t>(low[i]), static_cast<std::uint8_t>(high[i])});
  out.push_back(std::move(bytes));
}

std::vector<ByteRanges> utf8_of(const std::vector<CharRange>& ranges) {
  std::vector<ByteRanges> out;
  for (const CharRange& range : ranges)
    add_utf8(range.first, range.last, out);
  return out;
}

std::size_t saturated(std::size_t a, std::size_t b) {
  return std::min(a * b, kMostInstructions + 1);
}

class RuleCompiler {
public:
  RuleCompiler(const Rules& rules, const std::string& name) : rules_(rules), name_(name) {}

  Automaton run() {
    for (const Rule& rule : rules_.rules)
      bodies_.push_back(rule.body);
    require_finite();
    require_no_left_recursion();
    for (std::size_t i = 0; i < bodies_.size(); ++i) { // repetitions add to them
      const Address end = add({});
      const Address start = emit(*NodePtr(bodies_[i]), end);
      out_.starts.resize(std::max(out_.starts.size(), i + 1));
      out_.starts[i] = start;
    }
    out_.root = rules_.root;
    return std::move(out_);
  }

private:
  std::string rule_name(std::size_t i) const { return printable(rules_.rules[i].name); }

  /// Whether a predicate of rules holds for an expression where it holds for the rules that it
  /// names: of all parts of a sequence and any alternative.
  template <class Leaf>
  static bool derives(const Node& node, const std::vector<bool>& holds, Leaf&& leaf) {
    return std::visit(
        overloaded{[&](const Sequence& s) {
                     return std::ranges::all_of(
                         s.parts, [&](const NodePtr& p) { return derives(*p, holds, leaf); });
                   },
                   [&](const Choice& c) {
                     return std::ranges::any_of(c.alternatives, [&](const NodePtr& p) {
                       return derives(*p, holds, leaf);
                     });
                   },
                   [&](const Repeat& r) { return r.least == 0 || derives(*r.body, holds, leaf); },
                   [&](const Reference& r) { return bool(holds[r.rule]); },
                   [&](const auto& one) { return leaf(one); }},
        node.is);
  }
  template <class Leaf>
  std::vector<bool> rules_that(Leaf&& leaf) const {
    // Forwards and backwards, so that rules may name those before and behind them.
    constexpr int kMostSweeps = 64;
    std::vector<bool> holds(bodies_.size());
    bool changed = true;
    for (int sweep = 0; changed; ++sweep) {
      if (sweep == kMostSweeps)
        fail(ErrorKind::Value, "{}: the rules depend on each other in too many ways", name_);
      changed = false;
      for (std::size_t k = 0; k < bodies_.size(); ++k) {
        const std::size_t i = sweep % 2 == 0 ? k : bodies_.size() - 1 - k;
        if (!holds[i] && derives(*bodies_[i], holds, leaf))
          changed = holds[i] = true;
      }
    }
    return holds;
  }
  struct IsFinite {
    bool operator()(const Literal&) const { return true; }
    bool operator()(const CharClass& c) const { return !utf8_of(c.ranges).empty(); }
    template <class T>
    bool operator()(const T&) const {
      return false;
    }
  };
  struct IsEmpty {
    bool operator()(const Literal& l) const { return l.bytes.empty(); }
    template <class T>
    bool operator()(const T&) const {
      return false;
    }
  };

  void require_finite() const {
    const std::vector<bool> finite = rules_that(IsFinite{});
    for (std::size_t i = 0; i < finite.size(); ++i)
      if (!finite[i])
        fail(ErrorKind::Value, "{}: no finite text follows from '{}'", name_, rule_name(i));
    // Alternatives that derive nothing would let a text run into them.
    for (std::size_t i = 0; i < bodies_.size(); ++i)
      require_finite(*bodies_[i], finite, i);
  }
  void require_finite(const Node& node, const std::vector<bool>& finite, std::size_t rule) const {
    if (!derives(node, finite, IsFinite{}))
      fail(ErrorKind::Value, "{}: no text follows from a part of '{}'", name_, rule_name(rule));
    each_part(node, [&](const Node& part) { require_finite(part, finite, rule); });
  }
  template <class Call>
  static void each_part(const Node& node, Call&& call) {
    if (const auto* s = std::get_if<Sequence>(&node.is))
      for (const NodePtr& part : s->parts)
        call(*part);
    if (const auto* c = std::get_if<Choice>(&node.is))
      for (const NodePtr& part : c->alternatives)
        call(*part);
    if (const auto* r = std::get_if<Repeat>(&node.is))
      call(*r->body);
  }

  /// Rules that an expression may begin with.
  void add_first(const Node& node, const std::vector<bool>& empty,
                 std::vector<std::size_t>& first) const {
    if (const auto* r = std::get_if<Reference>(&node.is))
      first.push_back(r->rule);
    const auto* s = std::get_if<Sequence>(&node.is);
    if (s == nullptr) {
      each_part(node, [&](const Node& part) { add_first(part, empty, first); });
      return;
    }
    for (const NodePtr& part : s->parts) {
      add_first(*part, empty, first);
      if (!derives(*part, empty, IsEmpty{}))
        return;
    }
  }
  void require_no_left_recursion() const {
    const std::vector<bool> empty = rules_that(IsEmpty{});
    std::vector<std::vector<std::size_t>> first(bodies_.size());
    std::vector<std::size_t> begun_by(bodies_.size()); // how many rules may begin with each
    for (std::size_t i = 0; i < bodies_.size(); ++i) {
      add_first(*bodies_[i], empty, first[i]);
      for (const std::size_t rule : first[i])
        ++begun_by[rule];
    }
    // Rules that no other one begins with are taken away until those on cycles are left.
    std::vector<std::size_t> free;
    std::size_t left = bodies_.size();
    for (std::size_t i = 0; i < bodies_.size(); ++i)
      if (begun_by[i] == 0)
        free.push_back(i);
    for (; !free.empty(); --left) {
      const std::size_t rule = free.back();
      free.pop_back();
      for (const std::size_t next : first[rule])
        if (--begun_by[next] == 0)
          free.push_back(next);
    }
    if (left == 0)
      return;
    const auto at = std::ranges::find_if(begun_by, [](std::size_t n) { return n > 0; });
    fail(ErrorKind::Value, "{}: '{}' may begin with itself; left recursion is not supported", name_,
         rule_name(static_cast<std::size_t>(at - begun_by.begin())));
  }

  Address add(const Instruction& instruction) {
    if (out_.code.size() == kMostInstructions)
      fail(ErrorKind::Value, "{}: more than {} instructions", name_, kMostInstructions);
    out_.code.push_back(instruction);
    return static_cast<Address>(out_.code.size() - 1);
  }
  void set_split(Address at, const std::vector<Address>& targets) {
    out_.code[at] = {.kind = Instruction::Kind::Split,
                     .argument = static_cast<std::uint32_t>(out_.targets.size()),
                     .count = static_cast<std::uint32_t>(targets.size())};
    out_.targets.insert(out_.targets.end(), targets.begin(), targets.end());
  }
  Address split(const std::vector<Address>& targets) {
    if (targets.size() == 1)
      return targets[0];
    const Address at = add({});
    set_split(at, targets);
    return at;
  }
  Address byte(Bytes b, Address next) {
    return add({.kind = Instruction::Kind::Byte, .low = b.low, .high = b.high, .next = next});
  }

  Address emit(const Node& node, Address next) {
    return std::visit([&](const auto& one) { return emit(one, next); }, node.is);
  }
  Address emit(const Literal& one, Address next) {
    for (std::size_t i = one.bytes.size(); i-- > 0;) {
      const auto b = static_cast<std::uint8_t>(one.bytes[i]);
      next = byte({b, b}, next);
    }
    return next;
  }
  Address emit(const CharClass& one, Address next) {
    // Last bytes that are alike are one instruction.
    struct Shared {
      Bytes bytes;
      Address next, address;
    };
    std::vector<Shared> shared;
    std::vector<Address> starts;
    for (const ByteRanges& ranges : utf8_of(one.ranges)) {
      Address at = next;
      for (std::size_t i = ranges.size(); i-- > 0;) {
        const Bytes b = ranges[i];
        const auto known = std::ranges::find_if(shared, [&](const Shared& s) {
          return i > 0 && s.bytes.low == b.low && s.bytes.high == b.high && s.next == at;
        });
        if (known != shared.end()) {
          at = known->address;
          continue;
        }
        const Address fresh = byte(b, at);
        if (i > 0 && shared.size() < 64)
          shared.push_back({b, at, fresh});
        at = fresh;
      }
      starts.push_back(at);
    }
    return split(starts);
  }
  Address emit(const Sequence& one, Address next) {
    for (std::size_t i = one.parts.size(); i-- > 0;)
      next = emit(*one.parts[i], next);
    return next;
  }
  Address emit(const Choice& one, Address next) {
    std::vector<Address> starts;
    std::vector<std::string_view> words;
    for (const NodePtr& part : one.alternatives)
      if (const auto* word = std::get_if<Literal>(&part->is))
        words.push_back(word->bytes);
      else
        starts.push_back(emit(*part, next));
    std::ranges::sort(words);
    if (!words.empty())
      starts.push_back(emit(words, 0, next));
    return split(starts);
  }
  /// A trie of words in order that are alike in their first bytes.
  Address emit(std::span<const std::string_view> words, std::size_t alike, Address next) {
    if (words.front() == words.back())
      return emit(Literal{std::string(words[0].substr(alike))}, next);
    const auto common = static_cast<std::size_t>(
        std::ranges::mismatch(words.front(), words.back()).in1 - words.front().begin());
    if (common > alike)
      return emit(Literal{std::string(words[0].substr(alike, common - alike))},
                  emit(words, common, next));
    std::vector<Address> starts;
    for (std::size_t i = 0; i < words.size();) {
      if (words[i].size() == alike) {
        if (starts.empty())
          starts.push_back(next);
        ++i;
        continue;
      }
      std::size_t end = i;
      while (end < words.size() && words[end][alike] == words[i][alike])
        ++end;
      const auto b = static_cast<std::uint8_t>(words[i][alike]);
      starts.push_back(byte({b, b}, emit(words.subspan(i, end - i), alike + 1, next)));
      i = end;
    }
    return split(starts);
  }
  Address emit(const Reference& one, Address next) {
    return add({.kind = Instruction::Kind::Call,
                .next = next,
                .argument = static_cast<std::uint32_t>(one.rule)});
  }
  Address emit(const Repeat& one, Address next) {
    const bool bounded = one.most != Repeat::kUnbounded;
    const std::size_t copies = bounded ? one.most : std::size_t{one.least} + 1;
    NodePtr body = one.body;
    if (copies > 1 && out_.code.size() + saturated(copies, size_of(*body)) > kMostCopied) {
      bodies_.push_back(body);
      body = reference(bodies_.size() - 1);
    }
    if (!bounded) {
      const Address loop = add({});
      set_split(loop, {emit(*body, loop), next});
      next = loop;
    } else {
      const Address end = next;
      for (std::uint32_t i = one.least; i < one.most; ++i)
        next = split({emit(*body, next), end});
    }
    for (std::uint32_t i = 0; i < one.least; ++i)
      next = emit(*body, next);
    return next;
  }

  /// About how many instructions an expression takes.
  static std::size_t size_of(const Node& node) {
    std::size_t parts = 1;
    if (const auto* l = std::get_if<Literal>(&node.is))
      parts = std::max<std::size_t>(l->bytes.size(), 1);
    if (const auto* c = std::get_if<CharClass>(&node.is))
      parts = 4 * c->ranges.size();
    each_part(node, [&](const Node& part) {
      parts = std::min(parts + size_of(part), kMostInstructions + 1);
    });
    if (const auto* r = std::get_if<Repeat>(&node.is))
      parts = saturated(parts, r->most == Repeat::kUnbounded ? r->least + 1 : r->most);
    return parts;
  }

  const Rules& rules_;
  const std::string& name_;
  std::vector<NodePtr> bodies_;
  Automaton out_;
};

} // namespace

Automaton compiled(const Rules& rules, const std::string& name) {
  return RuleCompiler(rules, name).run();
}

} // namespace egret::text::grammar

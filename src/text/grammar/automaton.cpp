#include "text/grammar/automaton.h"

#include "support/fail.h"

#include <algorithm>

namespace egret::text::grammar {

namespace {

constexpr std::size_t kMostWays = 4096;

std::uint64_t key_of(std::uint32_t a, std::uint32_t b) {
  return (std::uint64_t{a} << 32U) | b;
}

bool is_nowhere(const Instruction& code) {
  return code.kind == Instruction::Kind::Split && code.count == 0;
}

/// Calls a function with each instruction that one goes on to, the first of a rule it calls too.
template <class F>
void each_next(const Automaton& automaton, const Instruction& code, F&& call) {
  switch (code.kind) {
  case Instruction::Kind::Byte:
    call(code.next);
    break;
  case Instruction::Kind::Split:
    for (std::uint32_t i = 0; i < code.count; ++i)
      call(automaton.targets[code.argument + i]);
    break;
  case Instruction::Kind::Call:
    call(code.next);
    call(automaton.starts[code.argument]);
    break;
  case Instruction::Kind::Return:
    break;
  }
}

} // namespace

Automaton restricted(const Automaton& automaton, const ByteSet& bytes) {
  const std::size_t count = automaton.code.size();
  // From the ends of rules backwards: who goes on to an instruction, grouped by it.
  std::vector<std::uint32_t> begin(count + 1);
  for (const Instruction& code : automaton.code)
    each_next(automaton, code, [&](Address next) { ++begin[next + 1]; });
  for (std::size_t i = 0; i < count; ++i)
    begin[i + 1] += begin[i];
  std::vector<Address> before(begin[count]);
  std::vector<std::uint32_t> at(begin.begin(), begin.end() - 1);
  for (Address i = 0; i < count; ++i)
    each_next(automaton, automaton.code[i], [&](Address next) { before[at[next]++] = i; });
  std::vector<bool> ends(count); // the end of its rule can be reached from it
  const auto holds = [&](const Instruction& code) {
    switch (code.kind) {
    case Instruction::Kind::Byte:
      for (unsigned b = code.low; b <= code.high; ++b)
        if (bytes[b])
          return bool(ends[code.next]);
      return false;
    case Instruction::Kind::Call:
      return ends[code.next] && ends[automaton.starts[code.argument]];
    case Instruction::Kind::Split:
    case Instruction::Kind::Return:
      return true; // asked of a split when one of its targets does
    }
    return false;
  };
  std::vector<Address> open;
  for (Address i = 0; i < count; ++i)
    if (automaton.code[i].kind == Instruction::Kind::Return) {
      ends[i] = true;
      open.push_back(i);
    }
  while (!open.empty()) {
    const Address reached = open.back();
    open.pop_back();
    for (std::uint32_t i = begin[reached]; i < begin[reached + 1]; ++i)
      if (const Address from = before[i]; !ends[from] && holds(automaton.code[from])) {
        ends[from] = true;
        open.push_back(from);
      }
  }
  Automaton out = automaton;
  for (Address i = 0; i < count; ++i)
    if (!ends[i])
      out.code[i] = {.kind = Instruction::Kind::Split};
  return out;
}

bool has_texts(const Automaton& automaton) {
  return !is_nowhere(automaton.code[automaton.starts[automaton.root]]);
}

Stacks::Id Stacks::push(Id stack, Address address) {
  const auto [at, fresh] = known_.emplace(key_of(stack, address), static_cast<Id>(frames_.size()));
  if (fresh)
    frames_.push_back({address, stack, frames_[stack].depth + 1});
  return at->second;
}

void Runner::follow(Way way, Stacks& stacks, Front& out) {
  const auto visit = [&](Way next) {
    if (seen_.insert(key_of(next.address, next.stack)).second)
      open_.push_back(next);
  };
  visit(way);
  while (!open_.empty()) {
    const Way at = open_.back();
    open_.pop_back();
    if (budget_-- == 0) {
      budget_ = 0;
      fail(ErrorKind::Value, "grammar: too ambiguous, a token would take too many steps");
    }
    const Instruction& code = automaton_.code[at.address];
    switch (code.kind) {
    case Instruction::Kind::Byte:
      if (out.ways.size() == kMostWays)
        fail(ErrorKind::Value, "grammar: more than {} parses of one text at once", kMostWays);
      out.ways.push_back(at);
      break;
    case Instruction::Kind::Split:
      for (std::uint32_t i = 0; i < code.count; ++i)
        visit({automaton_.targets[code.argument + i], at.stack});
      break;
    case Instruction::Kind::Call:
      // Nothing to come back for: a call at the end of a rule takes no stack.
      if (automaton_.code[code.next].kind == Instruction::Kind::Return)
        visit({automaton_.starts[code.argument], at.stack});
      else if (stacks.depth(at.stack) < Stacks::kMostDepth)
        visit({automaton_.starts[code.argument], stacks.push(at.stack, code.next)});
      break;
    case Instruction::Kind::Return:
      if (at.stack == Stacks::kBottom)
        out.ends = true;
      else
        visit({stacks.top(at.stack), stacks.below(at.stack)});
      break;
    }
  }
}

void Runner::begin() {
  open_.clear(); // a refusal may have left some
  if (seen_.bucket_count() > 4096)
    seen_ = std::unordered_set<std::uint64_t>(); // clear() takes as long as there are buckets
  else
    seen_.clear();
}

Front Runner::finish(Front out) const {
  std::ranges::sort(out.ways);
  return out;
}

Front Runner::start(Stacks& stacks) {
  begin();
  Front out;
  follow({automaton_.starts[automaton_.root], Stacks::kBottom}, stacks, out);
  return finish(std::move(out));
}

Front Runner::step(const Front& front, std::uint8_t byte, Stacks& stacks) {
  begin();
  Front out;
  for (const Way& way : front.ways) {
    const Instruction& code = automaton_.code[way.address];
    if (byte >= code.low && byte <= code.high)
      follow({code.next, way.stack}, stacks, out);
  }
  return finish(std::move(out));
}

} // namespace egret::text::grammar

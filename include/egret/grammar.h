// Constrained decoding: grammars of texts, also made from JSON schemas, and the tokens that may
// come next in a text that follows one.
//
//   Grammar grammar = Grammar::of_schema(R"({"type":"object","properties":{"x":{"type":"integer"}},
//                                            "required":["x"]})");
//   auto tokens = std::make_shared<const TokenGrammar>(grammar, TokenTexts(tokenizer));
//   model.generate(prompt, {.grammar = tokens});
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace egret {

class Tokenizer;

/// A context-free grammar over characters, compiled to a pushdown automaton over the bytes of
/// UTF-8. Any number of threads may use one at once; copies share everything.
///
/// Left-recursive rules, rules that derive no finite text and grammars of more than 200,000
/// instructions are Error(Value), with the rule's name.
class Grammar {
public:
  /// From the notation GBNF of llama.cpp: rules NAME ::= ALTERNATIVES from "root" on, with
  /// "literals", [classes], `.`, groups, references and the repetitions * + ? {m} {m,} {m,n}.
  /// Error(Parse) with the line for what is malformed, Error(Unsupported) for tokens as symbols.
  static Grammar parse(std::string_view gbnf, const std::string& name = "grammar");

  /// The JSON texts that a schema (docs/constrained.md lists its keywords) allows; some of those
  /// only: an object's properties come in the order of the schema, and others only where
  /// additionalProperties names a schema or is true. Error(File) for what is not JSON, Error(Parse)
  /// for a malformed pattern, Error(Value) for a keyword with a value of a wrong kind,
  /// Error(Unsupported) for a keyword that is not known, both with the place in the schema.
  /// `before` and `after` stand around the JSON text.
  static Grammar of_schema(std::string_view json_schema, const std::string& name = "schema",
                           std::string_view before = {}, std::string_view after = {});

  /// Any JSON object.
  static Grammar json_object();

  /// Whether a whole text follows the grammar.
  bool matches(std::string_view text) const;

private:
  friend class TokenGrammar;
  friend class GrammarMatcher;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// The bytes of all tokens of a tokenizer, in order: made once, for any number of grammars. Special
/// tokens have none.
class TokenTexts {
public:
  /// Error(Unsupported) for a decoder that gives tokens no bytes of their own (BPEDecoder).
  explicit TokenTexts(const Tokenizer& tokenizer);

private:
  friend class TokenGrammar;
  friend class GrammarMatcher;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// A grammar over the tokens of a vocabulary. What may follow a state of the automaton whatever
/// encloses it is worked out when it is first needed and kept (the adaptive token mask cache of
/// XGrammar, Dong et al. 2024; the index of Outlines, Willard & Louf 2023). Any number of threads.
///
/// Texts with a byte that no token has are left out. Error(Value) where no text is left, as of a
/// grammar of JSON and a vocabulary without `{`.
class TokenGrammar {
public:
  TokenGrammar(Grammar grammar, TokenTexts texts);

private:
  friend class GrammarMatcher;
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

/// A text that follows a grammar, token by token. One thread at a time.
class GrammarMatcher {
public:
  explicit GrammarMatcher(const TokenGrammar& grammar);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  /// Whether the text is complete: it may end here.
  bool may_end() const noexcept;
  /// Sets bit i of the words (64 bits each, all 0 before) for each token i that may come next;
  /// those beyond the words are left out. Error(Value) where a grammar is so ambiguous that more
  /// than 4,096 parses are under way at once, or that this would take more than 5 million steps.
  void allow(std::span<std::uint64_t> words);
  /// Appends a token; false, and nothing changes, where it may not come next.
  bool take(std::int32_t token);

private:
  struct State;
  std::unique_ptr<State> state_;
};

} // namespace egret

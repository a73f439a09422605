// Grammars: the texts that they allow, and the tokens that may come next.
#include "egret/grammar.h"

#include "egret/error.h"
#include "egret/tokenizer.h"
#include "support/random_json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace egret {
namespace {

using nlohmann::json;

void expect_texts(const Grammar& grammar, const std::vector<std::string>& good,
                  const std::vector<std::string>& bad) {
  for (const std::string& text : good)
    EXPECT_TRUE(grammar.matches(text)) << text;
  for (const std::string& text : bad)
    EXPECT_FALSE(grammar.matches(text)) << text;
}

TEST(Grammar, ReadsTheNotationOfLlamaCpp) {
  expect_texts(Grammar::parse(R"(
# A list of words.
root ::= item ("," " "? item)*  # one at least
item ::= [a-z]+ | "\x41\u00e9" | (
  "<" [^<>\n]{2,3} ">"
)
)"),
               {"a", "abc,d", "abc, Aé", "<xy>", "<é€𝄞>", "Aé,<ab>"},
               {"", "A", "a,", "a,  b", "<x>", "<abcd>", "<a\nb>", "\xc3"});
  expect_texts(
      Grammar::parse("root ::= . [\\]a\\-c-] r{2} r{0,1} r{1,}\nr ::= \"\" | \"x\" | root"),
      {"𝄞]", "a-xxxx", "xc"}, {"𝄞b", "a"});
  expect_texts(Grammar::parse("root ::= \"ab\" | \"abc\" | \"\" | \"b\" | \"ab\""),
               {"", "ab", "abc", "b"}, {"a", "bc", "abcd"});
}

TEST(Grammar, CountsBrackets) {
  const Grammar g = Grammar::parse("root ::= \"\" | \"(\" root \")\" root");
  expect_texts(g, {"", "()", "(()())()"}, {"(", ")(", "(()"});
  // A call at the end of a rule takes no stack, so that lists may be long.
  expect_texts(Grammar::parse("root ::= \"a\" | \"a\" root"), {std::string(100000, 'a')}, {});
  const std::string deep(400, '('), shut(400, ')');
  EXPECT_TRUE(g.matches(deep + shut));
}

TEST(Grammar, RangesOfCharactersAreRangesOfBytes) {
  for (const auto& [first, last] : std::initializer_list<std::pair<char32_t, char32_t>>{
           {0x20, 0x7f}, {0x41, 0x3ff}, {0x7ff, 0x800}, {0xfffe, 0x10001}, {0x3b1, 0x1f600}}) {
    const Grammar g = Grammar::parse(fmt::format("root ::= [\\U{:08x}-\\U{:08x}]",
                                                 static_cast<std::uint32_t>(first),
                                                 static_cast<std::uint32_t>(last)));
    for (char32_t c = 1; c < 0x20000; c += c < 0x1000 ? 1 : 13) {
      if (c >= 0xd800 && c < 0xe000)
        continue;
      EXPECT_EQ(g.matches(test::utf8(c)), c >= first && c <= last) << std::uint32_t{c};
    }
    EXPECT_TRUE(g.matches(test::utf8(first)) && g.matches(test::utf8(last)));
  }
}

TEST(JsonSchema, TypesAndConstants) {
  expect_texts(Grammar::of_schema(R"({"type":"boolean"})"), {"true", "false"}, {"1", " true", ""});
  expect_texts(Grammar::of_schema(R"({"type":["string","null"]})"),
               {"null", "\"\"", "\"a\\n\\u00e9\\\"\"", "\"𝄞\""},
               {"\"a", "\"\n\"", "\"\\x\"", "\"\\ud800\"", "5"});
  expect_texts(Grammar::of_schema(R"({"type":"number"})"), {"0", "-1.5e10", "12.25", "1E-3", "0.0"},
               {"01", "1.", ".5", "+1", "-", "1e"});
  expect_texts(Grammar::of_schema(R"({"enum":["a",1,{"b":[null]}]})"),
               {"\"a\"", "1", R"({"b":[null]})"}, {"a", "2"});
  expect_texts(Grammar::of_schema(R"({"type":"string","enum":["a",1]})"), {"\"a\""}, {"1"});
  expect_texts(Grammar::of_schema(R"({"const":"é\n"})"), {"\"é\\n\""}, {"\"e\""});
  expect_texts(Grammar::of_schema("{}"),
               {"[1,{\"a\":[]}]", "{ \"a\" : [ 1 , 2 ] }", "{\n  \"a\": 1\n}", "null"}, {"[1,]"});
  expect_texts(Grammar::json_object(), {"{}", R"({"a":[1]})"}, {"[]", "1"});
}

TEST(JsonSchema, IntegersWithinBounds) {
  for (const auto& [least, most] : std::initializer_list<std::pair<int, int>>{
           {0, 9}, {-5, 5}, {7, 13}, {99, 1001}, {-120, -8}, {0, 0}, {190, 211}, {-1, 1000}}) {
    const Grammar g = Grammar::of_schema(
        fmt::format(R"({{"type":"integer","minimum":{},"maximum":{}}})", least, most));
    for (int i = -1300; i < 1300; ++i)
      ASSERT_EQ(g.matches(std::to_string(i)), i >= least && i <= most) << i << " of " << least;
    EXPECT_FALSE(g.matches("007") || g.matches("-0"));
  }
  const Grammar open = Grammar::of_schema(R"({"type":"integer","exclusiveMinimum":41.5})");
  expect_texts(open, {"42", "100", "123456789012345678"}, {"41", "-42", "4", "1.0"});
  expect_texts(Grammar::of_schema(R"({"type":"integer","exclusiveMaximum":3})"), {"2", "-700"},
               {"3", "17"});
}

TEST(JsonSchema, LengthsPatternsAndFormats) {
  expect_texts(Grammar::of_schema(R"({"type":"string","minLength":2,"maxLength":3})"),
               {"\"ab\"", "\"é𝄞\\n\""}, {"\"a\"", "\"abcd\"", "\"\""});
  expect_texts(Grammar::of_schema(R"({"type":"string","pattern":"^(ab|c\\d{2,3})+x?$"})"),
               {"\"abx\"", "\"c12ab\""}, {"\"\"", "\"c1\"", "\"xab\""});
  expect_texts(Grammar::of_schema(R"({"type":"string","pattern":"\"[^a-y\\\\]\\."})"),
               {R"("so \"z. and")", R"("\"\n.")"}, {R"("\"a.")", R"("z.")", R"(""z.")"});
  expect_texts(Grammar::of_schema(R"({"type":"string","format":"date-time"})"),
               {"\"2026-11-23T13:00:59Z\"", "\"2000-01-01T00:00:00.25+02:00\""},
               {"\"2026-13-01T00:00:00Z\"", "\"2026-11-23\""});
}

TEST(JsonSchema, ObjectsHaveTheirPropertiesInOrder) {
  expect_texts(
      Grammar::of_schema(
          R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"null"},"c":{}},
          "required":["a"]})"),
      {R"({"a":null})", R"({"b":1,"a":null})", R"({"a":null,"c":[]})",
       "{\n  \"b\": 1,\n  \"a\": null,\n  \"c\": \"x\"\n}"},
      {"{}", R"({"b":1})", R"({"a":null,"b":1})", R"({"a":null,"d":1})", R"({"b":1,,"a":null})"});
  expect_texts(Grammar::of_schema(R"({"properties":{"a":{},"b":false}})"), {"{}", R"({"a":1})"},
               {R"({"b":1})", R"({"c":1})"});
  const Grammar open = Grammar::of_schema(
      R"({"properties":{"ab":{"type":"null"},"ac":{}},"additionalProperties":{"type":"integer"}})");
  expect_texts(open,
               {"{}", R"({"ab":null,"x":1})", R"({"x":1,"y":2})", R"({"a":1})", R"({"abc":1})",
                R"({"":1})", R"({"é":1})"},
               {R"({"x":null})", R"({"x":1,"ab":5})", R"({"ab":5})"});
  expect_texts(Grammar::of_schema(
                   R"({"type":"object","additionalProperties":{"type":"integer"},
                   "minProperties":1,"maxProperties":2})"),
               {R"({"a":1})", R"({"a":1,"b":2})"}, {"{}", R"({"a":1,"b":2,"c":3})"});
}

TEST(JsonSchema, ArraysWithinBounds) {
  expect_texts(Grammar::of_schema(R"({"items":{"type":"integer"},"minItems":2,"maxItems":3})"),
               {"[1,2]", "[1, 2, 3]"}, {"[]", "[1]", "[1,2,3,4]", "[1,\"a\"]"});
  expect_texts(Grammar::of_schema(
                   R"({"prefixItems":[{"type":"integer"},{"type":"null"}],"items":{"type":"string"},
                   "minItems":1,"maxItems":3})"),
               {"[1]", "[1,null]", "[1,null,\"a\"]"},
               {"[]", "[null]", "[1,\"a\"]", "[1,null,\"a\",\"b\"]"});
  expect_texts(Grammar::of_schema(R"({"prefixItems":[{}],"items":false})"), {"[]", "[1]"},
               {"[1,2]"});
}

TEST(JsonSchema, ReferencesMayRecur) {
  const Grammar tree = Grammar::of_schema(R"({"$defs":{"node":{"type":"object","properties":
    {"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/node"}}},
    "required":["v"]}},"$ref":"#/$defs/node"})");
  expect_texts(tree, {R"({"v":1})", R"({"v":1,"kids":[{"v":2,"kids":[]},{"v":3}]})"},
               {R"({"v":1,"kids":[2]})", R"({"kids":[]})"});
  expect_texts(Grammar::of_schema(R"({"anyOf":[{"type":"integer"},{"items":{"$ref":"#"}}]})"),
               {"1", "[[1],[],2]"}, {"[null]"});
  expect_texts(Grammar::of_schema(R"({"oneOf":[
    {"type":"object","properties":{"k":{"const":"a"},"x":{"type":"null"}},"required":["k","x"]},
    {"type":"object","properties":{"k":{"const":"b"}},"required":["k"]},{"type":"integer"}]})"),
               {R"({"k":"a","x":null})", R"({"k":"b"})", "5"}, {R"({"k":"b","x":null})"});
}

/// A byte-level tokenizer of all bytes and some longer tokens.
Tokenizer json_tokenizer(bool fallback) {
  return Tokenizer::parse(test::json_tokenizer(fallback).dump());
}

std::vector<std::int32_t> allowed(GrammarMatcher& matcher, std::size_t size) {
  std::vector<std::uint64_t> words((size + 63) / 64);
  matcher.allow(words);
  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i < size; ++i)
    if ((words[i / 64] >> (i % 64) & 1U) != 0)
      ids.push_back(static_cast<std::int32_t>(i));
  return ids;
}

/// Words of random tokens among those allowed: each step's mask is what the definition says, and
/// the text is of the grammar where it ends.
void expect_walks(const Grammar& grammar, const Tokenizer& tokenizer, int texts) {
  const TokenGrammar tokens(grammar, TokenTexts(tokenizer));
  std::uint64_t state = 7;
  int ended = 0;
  for (int t = 0; t < texts; ++t) {
    GrammarMatcher matcher(tokens);
    std::string text;
    for (int i = 0; i < 400; ++i) {
      const auto ids = allowed(matcher, tokenizer.size());
      ASSERT_EQ(matcher.may_end(), grammar.matches(text)) << text;
      if (ids.empty() || (matcher.may_end() && test::random_below(state, 8) == 0)) {
        ASSERT_TRUE(matcher.may_end()) << text;
        ++ended;
        break;
      }
      if (i % 16 == 0) { // the definition: a token may come where it can be taken
        for (std::int32_t id = 0; id < static_cast<std::int32_t>(tokenizer.size()); ++id) {
          GrammarMatcher other(tokens);
          for (const char c : text)
            ASSERT_TRUE(other.take(test::byte_token(c)));
          ASSERT_EQ(other.take(id), std::ranges::binary_search(ids, id))
              << text << " + " << tokenizer.bytes_of(id).value_or("(none)");
        }
      }
      const auto id = ids[test::random_below(state, ids.size())];
      ASSERT_TRUE(matcher.take(id));
      text += *tokenizer.bytes_of(id);
    }
  }
  EXPECT_GT(ended, 0);
}

TEST(TokenGrammar, AllowsTheTokensThatCanBeTaken) {
  for (const bool fallback : {false, true}) {
    const Tokenizer tokenizer = json_tokenizer(fallback);
    for (const char* schema :
         {R"({"type":"object","properties":{"a":{"type":"string","maxLength":5},
             "b":{"type":"array","items":{"enum":["true","tr",true,1]},"maxItems":3}},
             "required":["b"]})",
          R"({"anyOf":[{"type":"boolean"},{"type":"array","items":{"$ref":"#"}}]})",
          R"({"type":"string","pattern":"^(é|\"|[a-c]{2})*$"})",
          R"({"type":"integer","minimum":-30,"maximum":1234})"})
      expect_walks(Grammar::of_schema(schema), tokenizer, 12);
    expect_walks(Grammar::parse("root ::= (\"a\" | \"ab\" | \"b\"+ \"[\")* \"é\"? end\n"
                                "end ::= \"true\" | \"[\" end \"]\""),
                 tokenizer, 12);
  }
}

TEST(TokenGrammar, SpecialTokensAreNoPartOfATextAndNothingChangesWhereATokenIsRefused) {
  const Tokenizer tokenizer = json_tokenizer(false);
  const TokenGrammar tokens(Grammar::parse("root ::= .*"), TokenTexts(tokenizer));
  GrammarMatcher matcher(tokens);
  const auto ids = allowed(matcher, tokenizer.size());
  EXPECT_FALSE(std::ranges::binary_search(ids, *tokenizer.id_of("</s>")));
  EXPECT_FALSE(matcher.take(*tokenizer.id_of("</s>")));
  EXPECT_FALSE(matcher.take(-1));
  EXPECT_FALSE(matcher.take(1 << 20));
  EXPECT_TRUE(matcher.take(test::byte_token('\xc3')));
  EXPECT_FALSE(matcher.may_end()) << "half a character";
  EXPECT_FALSE(matcher.take(test::byte_token('a')));
  EXPECT_TRUE(matcher.take(test::byte_token('\xa9')));
  EXPECT_TRUE(matcher.may_end());
}

TEST(TokenGrammar, TokensAreTheBytesThatTheyAddBehindOthers) {
  const Tokenizer t = json_tokenizer(true);
  EXPECT_EQ(t.bytes_of(test::byte_token('\xe2')), "\xe2");
  EXPECT_EQ(t.bytes_of(*t.id_of("\u2581true")), " true");
  EXPECT_EQ(t.bytes_of(*t.id_of("</s>")), std::nullopt);
  EXPECT_EQ(t.bytes_of(-1), std::nullopt);
}

/// Of single bytes.
Tokenizer tokenizer_of(const std::string& bytes) {
  json model = test::json_tokenizer(false);
  json vocabulary = json::object();
  for (const auto& [text, id] : model["model"]["vocab"].items())
    if (text.size() == 1 && bytes.find(text) != std::string::npos)
      vocabulary[text] = vocabulary.size();
  model["model"] = {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}};
  model["added_tokens"] = json::array();
  return Tokenizer::parse(model.dump());
}

std::string error_of(const std::string& gbnf, const std::string& bytes) {
  try {
    const TokenGrammar made(Grammar::parse(gbnf), TokenTexts(tokenizer_of(bytes)));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(TokenGrammar, TextsThatTheVocabularyCannotWriteAreLeftOut) {
  // "b" leads to nothing but what needs a "c"; a choice, a call and a repetition alike.
  for (const char* rules :
       {"root ::= \"a\" | \"bc\"", "root ::= \"a\" | \"b\" end\nend ::= [c-e] | \"c\" end",
        "root ::= \"a\" | \"b\" \"c\"{1,3}"}) {
    const Tokenizer tokenizer = tokenizer_of("ab");
    const TokenGrammar tokens(Grammar::parse(rules), TokenTexts(tokenizer));
    GrammarMatcher matcher(tokens);
    EXPECT_EQ(allowed(matcher, tokenizer.size()),
              std::vector<std::int32_t>{static_cast<std::int32_t>(*tokenizer.id_of("a"))})
        << rules;
    EXPECT_FALSE(matcher.take(*tokenizer.id_of("b"))) << rules;
    EXPECT_TRUE(matcher.take(*tokenizer.id_of("a"))) << rules;
    EXPECT_TRUE(matcher.may_end()) << rules;
  }
  EXPECT_EQ(error_of("root ::= \"{\" root? \"}\"", "ab"),
            "grammar: its texts begin with '{', which no token of the vocabulary has");
  EXPECT_EQ(error_of("root ::= \"{\" root? \"}\"", "a{"),
            "grammar: the tokens of the vocabulary cannot write any text of it");
  EXPECT_EQ(error_of("root ::= \"{\" root? \"}\"", "{}"), "");
  EXPECT_EQ(error_of("root ::= \"x\"*", "ab"), "") << "the empty text";
}

} // namespace
} // namespace egret

// Grammars and schemas that are refused, with the kind and the words.
#include "egret/error.h"
#include "egret/grammar.h"
#include "egret/tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace egret {
namespace {

template <class Make>
void expect_refused(Make&& make, ErrorKind kind, const std::string& part, const std::string& what) {
  try {
    (void)make();
    ADD_FAILURE() << "taken: " << what;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << what << ": " << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << what << ": " << error.what();
  }
}

struct Case {
  std::string text;
  ErrorKind kind;
  std::string part;
};

TEST(GrammarErrors, OfTheNotation) {
  std::string groups = "root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')');
  for (const Case& c : std::initializer_list<Case>{
           {"", ErrorKind::Parse, "there is no rule 'root'"},
           {"root = \"a\"", ErrorKind::Parse, "line 1: '::=' is needed"},
           {"root ::= a\n", ErrorKind::Parse, "line 1: there is no rule 'a'"},
           {"root ::= \"a\"\n\nroot ::= \"b\"", ErrorKind::Parse, "line 3: there is a rule 'root'"},
           {"root ::= \"a", ErrorKind::Parse, "the line ends within quotes"},
           {"root ::= [a", ErrorKind::Parse, "the line ends within quotes or brackets"},
           {"root ::= [b-a]", ErrorKind::Parse, "ends before it begins"},
           {"root ::= \"\\q\"", ErrorKind::Parse, "'\\q' is no escape"},
           {"root ::= \"\\ud800\"", ErrorKind::Parse, "U+D800 is no character"},
           {"root ::= \"\\x4\"", ErrorKind::Parse, "2 hexadecimal digits"},
           {"root ::= (\"a\"", ErrorKind::Parse, "')' is needed"},
           {"root ::= \"a\")", ErrorKind::Parse, "')' cannot stand here"},
           {"root ::= *", ErrorKind::Parse, "'*' cannot stand here"},
           {"root ::= \"a\"{3,2}", ErrorKind::Parse, "repeats less"},
           {"root ::= \"a\"{9999999}", ErrorKind::Parse, "more than 1000000 repetitions"},
           {"root ::= \"a\"**", ErrorKind::Parse, "needs a group"},
           {"root ::= \"\xff\"", ErrorKind::Parse, "not UTF-8"},
           {groups, ErrorKind::Parse, "more than 64 groups"},
           {"root ::= <[5]>", ErrorKind::Unsupported, "tokens as symbols"},
           {"root ::= root \"a\" | \"b\"", ErrorKind::Value, "'root' may begin with itself"},
           {"root ::= e a \"x\"\na ::= e root\ne ::= \"\"", ErrorKind::Value, "no finite text"},
           {"root ::= \"x\" | e a\na ::= e root \"y\"\ne ::= \"\" | \"z\"", ErrorKind::Value,
            "may begin with itself"},
           {"root ::= \"a\" root", ErrorKind::Value, "no finite text follows from 'root'"},
           {"root ::= \"a\" | \"b\" never\nnever ::= \"c\" never", ErrorKind::Value, "'never'"},
           {"root ::= \"a\" | []", ErrorKind::Value, "no text follows from a part of 'root'"},
           {"root ::= ((\"a\"{1000} \"b\"){1000} [a-z]){1000}{1000}", ErrorKind::Parse,
            "needs a group"},
           {"root ::= \"a\"{1000000}", ErrorKind::Value, "more than 200000 instructions"}})
    expect_refused([&] { return Grammar::parse(c.text); }, c.kind, c.part, c.text);
}

TEST(GrammarErrors, OfSchemas) {
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i < 300; ++i)
    chain += fmt::format(R"("a{}":{{"items":{{"$ref":"#/$defs/a{}"}}}},)", i, i + 1);
  chain += R"("a300":{}}})";
  for (const Case& c : std::initializer_list<Case>{
           {"{", ErrorKind::File, "schema: not JSON"},
           {std::string(100, '['), ErrorKind::File, "brackets inside each other"},
           {"5", ErrorKind::Value, "#: a schema is an object"},
           {"false", ErrorKind::Value, "nothing is allowed"},
           {R"({"type":"text"})", ErrorKind::Value, "#/type: 'text' is no type"},
           {R"({"type":5})", ErrorKind::Value, "#/type: an array"},
           {R"({"properties":{"a":{"not":{}}}})", ErrorKind::Unsupported,
            "#/properties/a: 'not' is not supported"},
           {R"({"type":"string","minimum":5})", ErrorKind::Unsupported, "'minimum' for string"},
           {R"({"type":"array","uniqueItems":true})", ErrorKind::Unsupported, "'uniqueItems'"},
           {R"({"type":"object","patternProperties":{}})", ErrorKind::Unsupported,
            "'patternProperties'"},
           {R"({"required":["a"]})", ErrorKind::Unsupported, "required property 'a'"},
           {R"({"type":"number","minimum":1})", ErrorKind::Unsupported, "'minimum' for numbers"},
           {R"({"type":"integer","multipleOf":2})", ErrorKind::Unsupported, "'multipleOf'"},
           {R"({"type":"integer","minimum":2,"maximum":1})", ErrorKind::Value, "no integer"},
           {R"({"type":"integer","minimum":"1"})", ErrorKind::Value, "#/minimum: a number"},
           {R"({"minItems":3,"maxItems":2})", ErrorKind::Value, "minItems is above maxItems"},
           {R"({"minItems":-1})", ErrorKind::Value, "a number of things"},
           {R"({"minLength":1e9})", ErrorKind::Unsupported, "more than 100000"},
           {R"j({"pattern":"(?=a)"})j", ErrorKind::Unsupported, "a group with '(?'"},
           {R"({"pattern":"a*?"})", ErrorKind::Unsupported, "lazy repetition"},
           {R"({"pattern":"\\bword"})", ErrorKind::Unsupported, "'\\b'"},
           {R"({"pattern":"(a)\\1"})", ErrorKind::Unsupported, "'\\1'"},
           {R"({"pattern":"a$b"})", ErrorKind::Unsupported, "an anchor"},
           {R"({"pattern":"(a"})", ErrorKind::Parse, "')' is missing"},
           {R"({"pattern":"[a"})", ErrorKind::Parse, "']' is missing"},
           {R"({"pattern":"a{2"})", ErrorKind::Parse, "'}' is missing"},
           {R"({"format":"email"})", ErrorKind::Unsupported, "the format 'email'"},
           {R"({"pattern":"a","maxLength":2})", ErrorKind::Unsupported, "more than one of"},
           {R"({"$ref":"other.json"})", ErrorKind::Unsupported, "a $ref outside the schema"},
           {R"({"$ref":"#/$defs/a"})", ErrorKind::Value, "'#/$defs/a' is nothing in the schema"},
           {R"({"$ref":"#/~2"})", ErrorKind::Value, "is nothing in the schema"},
           {R"({"$ref":"#"})", ErrorKind::Value, "no finite text"},
           {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})", ErrorKind::Value,
            "no finite text"},
           {R"({"anyOf":[{"type":"null"},{"anyOf":[{"$ref":"#"}]}]})", ErrorKind::Value,
            "may begin with itself"},
           {chain, ErrorKind::Value, "nest deeper than 256"},
           {R"({"anyOf":[]})", ErrorKind::Value, "#/anyOf: an array that is not empty"},
           {R"({"allOf":[{},{}]})", ErrorKind::Unsupported, "more than one schema at once"},
           {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", ErrorKind::Unsupported,
            "alternatives 0 and 1 may allow the same value"},
           {R"({"anyOf":[{}],"type":"string"})", ErrorKind::Unsupported, "'type'"},
           {R"({"type":"string","enum":[1]})", ErrorKind::Value, "no value is of the type"},
           {R"({"properties":5})", ErrorKind::Value, "#/properties: an object is needed"}})
    expect_refused([&] { return Grammar::of_schema(c.text); }, c.kind, c.part,
                   c.text.substr(0, 100));
}

// Small schemas of which naive compilers make exponentially much, or recurse too deeply.
TEST(GrammarErrors, SchemasThatGrowHaveLimits) {
  std::string nested = R"({"type":"null"})";
  for (int i = 0; i < 60; ++i)
    nested = R"({"additionalProperties":)" + nested + "}";
  EXPECT_TRUE(Grammar::of_schema(nested).matches("{}"));
  expect_refused(
      [&] {
        return Grammar::of_schema(R"({"properties":{")" + std::string(30'000, 'a') +
                                  R"(":{}},"additionalProperties":true})");
      },
      ErrorKind::Unsupported, "a name of more than 256 bytes", "name");
  std::string items = "{}";
  for (int i = 0; i < 1000; ++i)
    items += ",{}";
  expect_refused([&] { return Grammar::of_schema(R"({"prefixItems":[)" + items + "]}"); },
                 ErrorKind::Unsupported, "more than 1000 items", "items");
  std::string properties, required;
  for (int i = 0; i < 300; ++i) {
    properties += fmt::format(R"({}"k{}":{{"$ref":"#/$defs/@"}})", i ? "," : "", i);
    required += fmt::format(R"({}"k{}")", i ? "," : "", i);
  }
  const auto definition = [&](char name) {
    std::string own = properties;
    std::ranges::replace(own, '@', name);
    return fmt::format(R"("{}":{{"properties":{{{}}},"required":[{}],"type":"object"}})", name, own,
                       required);
  };
  expect_refused(
      [&] {
        return Grammar::of_schema(fmt::format(
            R"({{"oneOf":[{{"$ref":"#/$defs/A"}},{{"$ref":"#/$defs/B"}}],"$defs":{{{},{}}}}})",
            definition('A'), definition('B')));
      },
      ErrorKind::Unsupported, "may allow the same value", "oneOf");
  expect_refused(
      [&] { return Grammar::parse(R"(root ::= (("" ""){30000}){30000} "a")").matches("a"); },
      ErrorKind::Value, "", "copies");
}

TEST(GrammarErrors, AmbiguityHasALimit) {
  const Grammar g = Grammar::parse("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"d\"");
  expect_refused([&] { return g.matches(std::string(40, 'a')); }, ErrorKind::Value,
                 "more than 4096 parses", "ambiguous");
}

TEST(GrammarErrors, DecodersWithoutBytes) {
  const Tokenizer t = Tokenizer::parse(
      R"({"decoder":{"type":"BPEDecoder","suffix":"</w>"},
          "model":{"type":"BPE","vocab":{"a":0},"merges":[]}})");
  expect_refused([&] { return TokenTexts(t); }, ErrorKind::Unsupported, "BPEDecoder", "BPEDecoder");
}

} // namespace
} // namespace egret

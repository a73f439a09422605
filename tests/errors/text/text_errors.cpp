// What hostile tokenizer files, patterns and templates are answered with.
#include "egret/chat_template.h"
#include "egret/tokenizer.h"
#include "support/files.h"
#include "support/message_cases.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

using testing::expect_all;

std::function<void()> parses(std::string json) {
  return [json] { Tokenizer::parse(json, "", "t"); };
}
/// A file whose model is fine and that has a further member.
std::function<void()> with(const std::string& member) {
  return parses(R"({"model":{"type":"WordLevel","vocab":{"a":0}},)" + member + "}");
}
std::function<void()> model(const std::string& text) {
  return parses(R"({"model":)" + text + "}");
}

std::function<void()> encodes(std::string json, std::string text) {
  return [=] { Tokenizer::parse(json, "", "t").encode(text); };
}

TEST(TokenizerErrors, FilesThatLie) {
  expect_all({
      {ErrorKind::File, "t: not JSON: parse error at line 1, column 2: ", parses("{")},
      {ErrorKind::File, "t: not JSON: ", parses("{\"a\":\"\xff\"}")},
      {ErrorKind::File, "t: not JSON: byte 2 is 0", parses(std::string("{}\0what is hidden", 17))},
      {ErrorKind::File, "t: 100 brackets inside each other, 64 are allowed",
       parses(std::string(100, '['))},
      {ErrorKind::File, "t: an object is needed, not array", parses("[]")},
      {ErrorKind::File, "t: 'model' is missing", parses("{}")},
      {ErrorKind::Unsupported, "t: model: 'X' is not known; known are BPE",
       model(R"({"type":"X"})")},
      {ErrorKind::File, "t: model.vocab: the id of 'a' is not an integer",
       model(R"({"type":"BPE","merges":[],"vocab":{"a":-1}})")},
      {ErrorKind::File, "t: model.vocab: the id of 'a' is not an integer",
       model(R"({"type":"BPE","merges":[],"vocab":{"a":4000000000}})")},
      {ErrorKind::File, "t: model.vocab: two tokens have the id 0",
       model(R"({"type":"BPE","merges":[],"vocab":{"a":0,"b":0}})")},
      {ErrorKind::File, "t: model.merges: [1]: 'z' is not in the vocabulary",
       model(R"({"type":"BPE","merges":["a a","a z"],"vocab":{"a":0,"aa":1}})")},
      {ErrorKind::File, "t: model.merges: [0]: a merge is two tokens",
       model(R"({"type":"BPE","merges":["a a a"],"vocab":{"a":0}})")},
      {ErrorKind::Unsupported, "t: model.dropout: 0.1: dropout makes tokens random",
       model(R"({"type":"BPE","dropout":0.1,"merges":[],"vocab":{}})")},
      {ErrorKind::File, "t: model.vocab[0]: a token and its score",
       model(R"({"type":"Unigram","vocab":[["a"]]})")},
      {ErrorKind::File, "t: model.unk_id: an integer from 0 to 0 is needed",
       model(R"({"type":"Unigram","unk_id":7,"vocab":[["a",1]]})")},
      {ErrorKind::Unsupported, "t: normalizer.normalizers[0]: 'X' is not known",
       with(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"X"}]})")},
      {ErrorKind::File, "t: normalizer.precompiled_charsmap: not base64",
       with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"!"})")},
      {ErrorKind::File, "t: normalizer.precompiled_charsmap: the table is longer",
       with(R"("normalizer":{"type":"Precompiled","precompiled_charsmap":"/////w=="})")},
      {ErrorKind::Parse, "t: pre_tokenizer.pattern.Regex: the pattern '(': ",
       with(R"("pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"("}})")},
      {ErrorKind::Unsupported, "t: pre_tokenizer.pattern.Regex: nested or intersected",
       with(
           R"("pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"[a-z&&[^b]]"}})")},
      {ErrorKind::Unsupported, "t: pre_tokenizer.behavior: 'Odd' is not known",
       with(R"("pre_tokenizer":{"type":"Split","behavior":"Odd","pattern":{"String":"x"}})")},
      {ErrorKind::File, "t: pre_tokenizer.prepend_scheme: contradicts",
       with(
           R"("pre_tokenizer":{"type":"Metaspace","add_prefix_space":false,"prepend_scheme":"first"})")},
      {ErrorKind::File, "t: post_processor.single[0].SpecialToken.id: is not among",
       with(
           R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"x"}}],"special_tokens":{}})")},
      {ErrorKind::File, "t: decoder.content: a string is needed, not number",
       with(R"("decoder":{"type":"Strip","content":3})")},
      {ErrorKind::File, "t: added_tokens[0]: 'content' is missing", with(R"("added_tokens":[{}])")},
  });
  test::TempFolder folder;
  test::write_file(folder / "tokenizer.json", "nonsense");
  test::expect_refused(
      folder / "tokenizer.json", [&] { Tokenizer::load(folder.path()); }, "not JSON");
  test::expect_refused(
      folder / "none", [&] { Tokenizer::load(folder / "none"); }, "");
}

TEST(TokenizerErrors, TextsThatCannotBeEncoded) {
  expect_all({
      {ErrorKind::Value,
       "tokenizer: 'x' is not in the vocabulary, nor is the unknown token '<unk>'",
       encodes(R"({"model":{"type":"WordLevel","vocab":{}}})", "x")},
      {ErrorKind::Value, "tokenizer: 'x' is not in the vocabulary and there is no unknown token",
       encodes(R"({"model":{"type":"Unigram","vocab":[]}})", "x")},
      {ErrorKind::Value, "t: pre_tokenizer.pattern.Regex: the pattern '(x+x+)+y' at byte 0",
       encodes(
           R"({"model":{"type":"BPE","vocab":{},"merges":[]},"pre_tokenizer":{"type":"Split","behavior":"Isolated","pattern":{"Regex":"(x+x+)+y"}}})",
           std::string(5000, 'x') + "zy")},
  });
}

/// A file of which a short text would become one of gigabytes.
TEST(TokenizerErrors, FilesThatMakeMuchOfLittle) {
  const std::string a_model = R"("model":{"type":"WordLevel","vocab":{"a":0},"unk_token":"a"})";
  const std::string thousand(1000, 'a'), million(1'000'000, 'a');
  auto sequence = [&](const std::string& step, int count) {
    std::string steps = step;
    for (int i = 1; i < count; ++i)
      steps += "," + step;
    return "{" + a_model + R"(,"normalizer":{"type":"Sequence","normalizers":[)" + steps + "]}}";
  };
  auto replace = [](const char* kind, const std::string& content) {
    return std::string(R"({"type":"Replace","pattern":{")") + kind + R"(":"a"},"content":")" +
           content + R"("})";
  };
  auto decodes = [](std::string json) {
    return [json] { Tokenizer::parse(json, "", "t").decode(std::vector<std::int32_t>{0}); };
  };
  auto text_times = [&](int count, int templates) {
    std::string places = R"({"Sequence":{"id":"A","type_id":0}})", all;
    for (int i = 1; i < count; ++i)
      places += R"(,{"Sequence":{"id":"A","type_id":0}})";
    for (int i = 0; i < templates; ++i)
      all += (i > 0 ? "," : "") +
             (R"({"type":"TemplateProcessing","special_tokens":{},"pair":[],"single":[)" + places +
              "]}");
    return R"("post_processor":{"type":"Sequence","processors":[)" + all + "]}";
  };
  expect_all({
      {ErrorKind::Value, "t: normalizer.normalizers[0]: it makes a text of more than 129536 bytes",
       encodes(sequence(replace("String", thousand), 4), thousand)},
      {ErrorKind::Value, "t: normalizer.normalizers[0]: it makes a text of more than 129536 bytes",
       encodes(sequence(replace("Regex", thousand), 4), thousand)},
      {ErrorKind::Value, "t: normalizer.normalizers[16]: it makes a text of more than 65600 bytes",
       encodes(sequence(replace("String", "aa"), 60), "a")},
      {ErrorKind::Value, "t: normalizer.normalizers[0]: it makes a text of more than 65600 bytes",
       encodes(sequence(R"({"type":"Prepend","prepend":")" + million + R"("})", 60), "a")},
      {ErrorKind::Value, "t: decoder.decoders[1]: it makes a text of more than 66536 bytes",
       decodes("{" + a_model + R"(,"decoder":{"type":"Sequence","decoders":[)" +
               replace("String", thousand) + "," + replace("String", thousand) + "]}}")},
      {ErrorKind::File, "t: post_processor.processors[0]: the tokens of a text more than 16 times",
       with(text_times(17, 1))},
      {ErrorKind::File, "t: post_processor.processors[4]: the tokens of a text more than 16 times",
       with(text_times(2, 60))},
      {ErrorKind::File, "t: model.vocab[1]: a token of 1000000 bytes; 1024 are the most",
       model(R"({"type":"Unigram","vocab":[["a",0],[")" + million + R"(",0]]})")},
      {ErrorKind::File, "t: model: a token or prefix of 1000000 bytes; 1024 are the most",
       model(R"({"type":"WordPiece","vocab":{")" + million + R"(":0}})")},
      {ErrorKind::File, "t: added_tokens[0]: a token of 1000000 bytes; 1024 are the most",
       with(R"("added_tokens":[{"id":1,"content":")" + million + R"("}])")},
  });
}

std::function<void()> renders(std::string text, TemplateLimits limits = {}) {
  return [=] { ChatTemplate::parse(text, "c").render("{}", limits); };
}

std::string repeated(std::string_view text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i)
    out += text;
  return out;
}

TEST(TemplateErrors, GrammarWithItsLine) {
  expect_all({
      {ErrorKind::Parse, "c: line 2: unexpected '}'", renders("\n{% if x }}")},
      {ErrorKind::Parse, "c: line 1: 'endif' is missing", renders("{% if x %}")},
      {ErrorKind::Parse, "c: line 1: 'endfor' without its beginning", renders("{% endfor %}")},
      {ErrorKind::Parse, "c: line 1: an expression is needed, not '}}'", renders("{{ }}")},
      {ErrorKind::Parse, "c: line 1: a string without its end", renders("{{ 'x }}")},
      {ErrorKind::Parse, "c: line 3: unexpected '$'", renders("\n\n{{ $ }}")},
      {ErrorKind::Parse, "c: line 1: 'break' outside a loop", renders("{% break %}")},
      {ErrorKind::Parse, "c: line 1: more than 200 levels of nesting",
       renders("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}")},
      {ErrorKind::Parse, "c: line 1: an expression of more than",
       renders("{{ 1" + repeated("+1", 5000) + " }}")},
      {ErrorKind::Parse, "c: line 1: an expression of more than",
       renders("{{ " + repeated("range(", 40) + "1" + repeated(")" + repeated("+1", 390), 40) +
               " }}")},
      {ErrorKind::Unsupported, "c: line 1: the statement 'include' is not known",
       renders("{% include 'x' %}")},
      {ErrorKind::Unsupported, "c: line 1: the filter 'nope' is not known",
       renders("{{ 1 | nope }}")},
      {ErrorKind::Unsupported, "c: line 1: the test 'nope' is not known",
       renders("{{ 1 is nope }}")},
      {ErrorKind::Parse, "c: variables: not JSON: parse error at line 1",
       [] { ChatTemplate::parse("", "c").render("{"); }},
      {ErrorKind::Parse, "c: variables: not JSON: byte 2 is 0",
       [] { ChatTemplate::parse("", "c").render(std::string("{}\0more", 7)); }},
  });
}

/// Items that a filter makes of a text or a dictionary live as long as it reads them.
TEST(TemplateErrors, FiltersOfTextsAndDictionaries) {
  EXPECT_EQ(ChatTemplate::parse("{{ {'a': 1, 'b': 2} | join(',') }} {{ 'xyz' | join('-') }} "
                                "{{ 'zyx' | sort }} {{ 'xx' | unique | list }} {{ 'ab' | max }}")
                .render("{}"),
            "a,b x-y-z ['x', 'y', 'z'] ['x'] b");
}

/// Of two megabytes in four: by comparison at each place it would take hours.
TEST(TemplateErrors, SearchesTakeTimeThatIsLinear) {
  const std::string long_texts = "{% set a = 'a' * 2000000 %}{% set all = a ~ a %}"
                                 "{% set end = a ~ 'b' %}{% set start = 'b' ~ a %}";
  for (const auto& [expression, result] :
       std::vector<std::pair<std::string, std::string>>{{"end in all", "False"},
                                                        {"all.find(end)", "-1"},
                                                        {"all.rfind(start)", "-1"},
                                                        {"all.count(end)", "0"},
                                                        {"all.replace(end, 'x') == all", "True"},
                                                        {"all.split(end) | length", "1"},
                                                        {"all.rsplit(start) | length", "1"}})
    EXPECT_EQ(ChatTemplate::parse(long_texts + "{{ " + expression + " }}").render("{}"), result)
        << expression;
}

TEST(TemplateErrors, MistakesWhileRendering) {
  expect_all({
      {ErrorKind::Value, "c: line 1: an indentation of 10000000000 spaces; 1000 is the most",
       renders("{{ 'a' | indent(10000000000) }}")},
      {ErrorKind::Value, "c: line 1: an indentation of 65 spaces; 64 is the most",
       renders("{{ {} | tojson(indent=65) }}")},
      {ErrorKind::Value, "c: line 1: it takes too many steps",
       renders("{{ ('a ' * 1000000).split() | length }}", {.steps = 200'000})},
      {ErrorKind::Value, "c: line 1: a list of more than 1048576 items",
       renders("{{ ('a ' * 10000000).split() | length }}")},
      {ErrorKind::Value, "c: line 1: a list of more than 1048576 items",
       renders("{{ ('a,' * 10000000).split(',') | length }}")},
      {ErrorKind::Value, "c: line 1: a list of more than 1048576 items",
       renders("{{ ('a\\n' * 10000000).splitlines() | length }}")},
      {ErrorKind::Value, "c: line 1: a list of more than 1048576 items",
       renders("{{ ('a' * 10000000) | list | length }}")},
      {ErrorKind::Value, "c: line 1: a list of more than 1048576 items",
       renders("{{ ([1] * 10000000) | length }}")},
      {ErrorKind::Value, "c: line 1: a list of more than 1048576 items",
       renders("{% set n = namespace(s=[1]) %}{% for i in range(60) %}"
               "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s | length }}")},
      {ErrorKind::Value, "c: line 2: 'x' is undefined", renders("\n{{ x.y }}")},
      {ErrorKind::Value, "c: line 1: the template says: no",
       renders("{{ raise_exception('no') }}")},
      {ErrorKind::Value, "c: line 1: division by zero", renders("{{ 1 % 0 }}")},
      {ErrorKind::Value, "c: line 1: integer + string", renders("{{ 1 + 'a' }}")},
      {ErrorKind::Value, "c: line 1: an integer of more than 64 bits",
       renders("{{ 9223372036854775807 + 1 }}")},
      {ErrorKind::Value, "c: line 1: it takes too many steps",
       renders("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
               {.steps = 100000})},
      {ErrorKind::Value, "c: line 1: a text of more than 1000 bytes",
       renders("{{ 'x' * 2000 }}", {.output_bytes = 1000})},
      {ErrorKind::Value, "c: line 1: a text of more than 1000 bytes",
       renders("{% for a in range(2000) %}x{% endfor %}", {.output_bytes = 1000})},
      {ErrorKind::Value, "c: line 1: more than 800 statements and expressions inside each other",
       renders("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}")},
      {ErrorKind::Value, "c: line 1: more than 800 statements and expressions inside each other",
       renders("{% macro m() %}" + repeated("{% if 1 %}", 100) + "{{ m()" + repeated("+1", 380) +
               " }}" + repeated("{% endif %}", 100) + "{% endmacro %}{{ m() }}")},
      {ErrorKind::Value, "c: line 1: more than 800 statements and expressions inside each other",
       renders("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}")},
      {ErrorKind::Value, "c: line 1: lists inside each other, too deep",
       renders("{% set n = namespace(x=1) %}{% for i in range(999) %}{% set n.x = [n.x] %}{% "
               "endfor %}")},
      {ErrorKind::Value, "c: line 1: a namespace inside another value",
       renders("{% set n = namespace() %}{% set n.x = n %}")},
      {ErrorKind::Value, "c: line 1: lists inside each other, too deep",
       renders("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% set n.x = [n.x].index "
               "%}{% endfor %}")},
      {ErrorKind::Value, "c: line 1: a loop inside another value",
       renders("{% set n = namespace(x=[]) %}{% for i in range(99999) %}{% for j in [n.x] %}{% set "
               "n.x = loop %}{% endfor %}{% endfor %}")},
      {ErrorKind::Value, "c: line 1: a loop inside another value",
       renders("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}")},
      {ErrorKind::Value, "c: line 1: range() of more than", renders("{{ range(1000000) }}")},
      {ErrorKind::Value, "c: line 1: 'list.append' is undefined", renders("{{ [].append(1) }}")},
  });
}

} // namespace
} // namespace egret

#include "egret/chat_template.h"
#include "egret/tokenizer.h"

#include <gtest/gtest.h>

namespace egret {
namespace {

constexpr const char* kTokenizer = R"({"model":{"type":"WordLevel","vocab":{"<s>":0,"</s>":1}}})";

TEST(ChatTemplate, MessagesToolsAndSpecialTokens) {
  const Tokenizer tokenizer =
      Tokenizer::parse(kTokenizer, R"({"bos_token":"<s>","eos_token":"</s>"})");
  const ChatTemplate chat = ChatTemplate::parse(
      "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m['content'] | trim }}{{ eos_token "
      "}}{% endfor %}"
      "{% if tools %}{{ tools | tojson }}{% endif %}{% if mood is defined %}{{ mood }}{% endif %}"
      "{% if add_generation_prompt %}<assistant>{% endif %}");
  const ChatMessage messages[] = {{"system", " be brief "}, {"user", "hi\xff"}};
  EXPECT_EQ(chat.render(messages, tokenizer), "<s><system>be brief</s><user>hi\uFFFD</s>");
  EXPECT_EQ(chat.render(messages, tokenizer,
                        {.generation_prompt = true,
                         .tools_json = R"([{"z":1,"a":"é"}])",
                         .variables_json = R"({"mood":"calm"})"}),
            "<s><system>be brief</s><user>hi\uFFFD</s>[{\"z\": 1, \"a\": \"é\"}]calm<assistant>");
}

TEST(ChatTemplate, TheTimeCanBeGiven) {
  EXPECT_EQ(ChatTemplate::parse("{{ strftime_now('%d %b %Y') }}").render("{}", {}, 1700000000),
            "14 Nov 2023");
}

} // namespace
} // namespace egret

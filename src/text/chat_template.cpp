#include "egret/chat_template.h"

#include "egret/tokenizer.h"
#include "support/fail.h"
#include "text/template_ast.h"
#include "text/template_interpreter.h"
#include "text/utf8.h"

#include <algorithm>
#include <chrono>

namespace egret {

using namespace text::jinja;

struct ChatTemplate::Impl {
  std::string name;
  Block block;

  std::string render(const Dict& variables, const TemplateLimits& limits,
                     std::optional<std::int64_t> now) const {
    Budget budget{name, 1, limits.steps, limits.output_bytes};
    const auto clock = std::chrono::system_clock::now().time_since_epoch();
    return text::jinja::render(
        block, variables, budget,
        now.value_or(std::chrono::duration_cast<std::chrono::seconds>(clock).count()));
  }
};

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& name) {
  if (text.size() > std::size_t{1} << 20)
    fail(ErrorKind::Unsupported, "{}: a template of {} bytes", name, text.size());
  auto impl = std::make_shared<Impl>();
  impl->name = name;
  impl->block = parse_template(text::replace_invalid_utf8(text), name);
  ChatTemplate out;
  out.impl_ = std::move(impl);
  return out;
}

namespace {

/// The members of a JSON object; nothing for empty text.
void add_variables(std::string_view json, const std::string& name, Dict& variables) {
  if (json.empty())
    return;
  const Value value = from_json(json, name);
  if (!value.is_dict())
    fail(ErrorKind::Value, "{}: a JSON object is needed, not {}", name, value.type_name());
  for (const auto& [key, item] : value.dict().items)
    variables.set(key, item);
}

} // namespace

std::string ChatTemplate::render(std::string_view variables_json, const TemplateLimits& limits,
                                 std::optional<std::int64_t> now) const {
  Dict variables;
  add_variables(variables_json, impl_->name + ": variables", variables);
  return impl_->render(variables, limits, now);
}

std::string ChatTemplate::render(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                                 const ChatOptions& options) const {
  Dict variables;
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token"})
    if (const auto token = tokenizer.special_token(role))
      variables.set(role, *token);
  auto list = std::make_shared<List>();
  list->depth = 2;
  for (const ChatMessage& message : messages) {
    auto one = std::make_shared<Dict>();
    one->set("role", text::replace_invalid_utf8(message.role));
    one->set("content", text::replace_invalid_utf8(message.content));
    add_variables(message.more_json, impl_->name + ": message", *one);
    for (const auto& [key, item] : one->items)
      one->depth = std::max(one->depth, 1 + (item.is_list()   ? item.list().depth
                                             : item.is_dict() ? item.dict().depth
                                                              : 0));
    list->depth = std::max(list->depth, 1 + one->depth);
    list->items.emplace_back(std::move(one));
  }
  variables.set("messages", Value(std::move(list)));
  variables.set("add_generation_prompt", options.generation_prompt);
  variables.set("tools", options.tools_json.empty()
                             ? Value(None{})
                             : from_json(options.tools_json, impl_->name + ": tools"));
  variables.set("documents", None{});
  add_variables(options.variables_json, impl_->name + ": variables", variables);
  return impl_->render(variables, options.limits, options.now);
}

} // namespace egret

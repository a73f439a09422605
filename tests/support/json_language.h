// A small language model with random weights whose tokenizer can write any JSON text.
#pragma once

#include "support/language_models.h"
#include "support/random_json.h"

#include <filesystem>

namespace egret::test {

/// Calls of tools in the form of Hermes and Qwen.
inline constexpr const char* kToolTemplate =
    "{% if tools %}<|end|>{% for t in tools %}{{ t | tojson }}{% endfor %}"
    "<tool_call>{\"name\": , \"arguments\": }</tool_call>{% endif %}"
    "{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}a:{% endif %}";

inline void write_json_language_folder(const std::filesystem::path& folder) {
  nlohmann::json model = golden_language("llama");
  const nlohmann::json old = model["config"]["vocab_size"];
  const nlohmann::json tokenizer = json_tokenizer(false);
  const std::size_t count = tokenizer["model"]["vocab"].size();
  model["config"]["vocab_size"] = count;
  for (auto& [name, of] : model["tensors"].items())
    for (auto& size : of["shape"])
      if (size == old && (name.find("embed") != std::string::npos || name.starts_with("lm_head")))
        size = count;
  write_language_folder(folder, model["config"], language_tensors(model));
  write_json(folder / "tokenizer.json", tokenizer);
  write_json(folder / "tokenizer_config.json",
             {{"eos_token", "</s>"}, {"chat_template", kToolTemplate}});
}

} // namespace egret::test

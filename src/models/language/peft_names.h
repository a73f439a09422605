// Names in the files of PEFT's adapters.
#pragma once

#include <string_view>

namespace egret::models::language::peft {

inline constexpr const char* kConfig = "adapter_config.json";
inline constexpr const char* kTensors = "adapter_model.safetensors";
// Of a tensor: the prefix, the module, and which of the two matrices it is.
inline constexpr std::string_view kPrefix = "base_model.model.";
inline constexpr std::string_view kA = ".lora_A.weight", kB = ".lora_B.weight";
/// Behind a module whose second parameter has an update too, for that of the first.
inline constexpr std::string_view kFirst = ".base_layer";

} // namespace egret::models::language::peft

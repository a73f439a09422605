// What a configuration of a language model must satisfy when it could be read.
#pragma once

#include "models/language/config.h"

#include <cstdlib>

namespace egret::fuzz {

/// Reads the configuration and ends the program where sizes contradict each other.
inline void check_config(models::Keys& keys, const models::language::Architecture& row) {
  const models::LanguageConfig config = models::language::read_config(keys, row, 0);
  if (config.heads % config.kv_heads != 0 || std::ssize(config.sliding) != config.layers ||
      2 * std::ssize(config.rotary.frequencies) > config.head_size)
    std::abort();
}

} // namespace egret::fuzz

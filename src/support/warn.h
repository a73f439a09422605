// Warnings, on their way to the hook of on_warning().
#pragma once

#include "egret/log.h"

#include <fmt/format.h>

#include <string>

namespace egret {

void give_warning(const std::string& text);

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  give_warning(fmt::format(format, std::forward<Args>(args)...));
}

} // namespace egret

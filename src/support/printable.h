// Text of unknown origin made fit to be shown.
#pragma once

#include <string>
#include <string_view>

namespace egret {

/// Text from a file, fit for a message of one line: short, control characters and what is not UTF-8
/// shown as \xNN.
std::string printable(std::string_view text);

/// Text of any length and number of lines, fit for a terminal: control characters but newlines and
/// tabs (the C1 set included), and what is not UTF-8, are shown as \xNN.
std::string terminal_text(std::string_view text);

} // namespace egret

// Values and terms as text.
#pragma once

#include "egraph/engine.h"

#include <string>

namespace egret::egraph {

/// Shortest text that reads back as the same number; always with a point or an exponent.
std::string show_f64(double x);
/// A string literal with escapes.
std::string show_string(std::string_view text);
/// A literal of a built-in sort, or "Sort#id" for a class and "Sort#id" for a container.
std::string show_value(const Engine& engine, SortId sort, Value value);
/// A term on one line, as a tree while that is short, else with (let ...) for what is shared.
std::string show_term(const Engine& engine, const TermGraph& graph, std::uint32_t root);

} // namespace egret::egraph

// Runs a parsed template.
#pragma once

#include "text/template_ast.h"
#include "text/template_value.h"

#include <cstdint>
#include <string>

namespace egret::text::jinja {

/// The text of a template with the variables of a dictionary. `now` is for strftime_now, in seconds
/// since 1970.
std::string render(const Block& block, const Dict& variables, Budget& budget, std::int64_t now);

} // namespace egret::text::jinja

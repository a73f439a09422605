// Reports as JSON, for `egret compile --json` and for records.
#pragma once

#include "compiler/report.h"

#include <nlohmann/json.hpp>

namespace egret::compiler {

nlohmann::ordered_json json_of(const SearchReport& search);
nlohmann::ordered_json json_of(const CompileReport& report);

} // namespace egret::compiler

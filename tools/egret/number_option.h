// What the numbers of the command line may be: the one check of all numeric options. NaN, infinity
// and numbers that do not fit their type are refused with the bounds that hold.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>

namespace egret::tool {

CLI::Validator number_above(double least); ///< finite
CLI::Validator number_from(double least);  ///< finite
CLI::Validator number_within(double least, double most);
CLI::Validator is_seconds(); ///< above 0, to 1e9 (30 years)
/// An integer in decimal.
CLI::Validator whole_within(std::int64_t least, std::int64_t most);
/// Start of random numbers: 0 to 2^64 - 1.
CLI::Validator is_seed();

} // namespace egret::tool

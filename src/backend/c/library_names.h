// Names in the text of a C library: of the function, and of its parameters.
#pragma once

#include <set>
#include <span>
#include <string>
#include <string_view>

namespace egret::backend::c {

/// Whether the word may name the function: letters, digits and underscores, at most 63, from a
/// letter on; no keyword, and nothing that the headers of a library's text declare.
bool is_function_name(std::string_view word);

/// Names of parameters: identifiers, each once.
class LibraryNames {
public:
  /// `dims`: of the plan, which the text calls d0, d1 ... `reserved`: other words that it uses.
  LibraryNames(std::size_t dims, std::span<const std::string> reserved);

  /// An identifier made of `wanted`, or `otherwise` where nothing is left of it.
  std::string take(std::string_view wanted, std::string_view otherwise);

private:
  std::set<std::string, std::less<>> used_;
};

} // namespace egret::backend::c

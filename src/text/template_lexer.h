// Templates to tokens: text, and what stands between {{ }} and {% %}.
#pragma once

#include "text/template_value.h"

#include <string>
#include <string_view>
#include <vector>

namespace egret::text::jinja {

struct Token {
  enum class Kind {
    Text,
    PrintBegin,
    PrintEnd,
    BlockBegin,
    BlockEnd,
    Name,
    String,
    Integer,
    Float,
    Operator,
    End
  };
  Kind kind = Kind::End;
  int line = 0;
  std::string text; ///< of texts, names, strings and operators
  std::int64_t integer = 0;
  double number = 0;

  bool is(Kind k, std::string_view t) const { return kind == k && text == t; }
  bool op(std::string_view t) const { return is(Kind::Operator, t); }
  bool name(std::string_view t) const { return is(Kind::Name, t); }
};

/// With trim_blocks and lstrip_blocks; newlines are "\n" and one at the end is dropped.
std::vector<Token> tokenize(std::string_view source, const std::string& name);

} // namespace egret::text::jinja

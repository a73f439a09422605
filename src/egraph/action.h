// What a rule does with a match, as a short program over registers. Also the form of :merge
// expressions.
#pragma once

#include "egraph/source.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace egret::egraph {

enum class ActionOp : std::uint8_t {
  Primitive, ///< dst = primitive(args); failing is an error
  Construct, ///< dst = the class of constructor(args), made if absent; for a relation: inserts the
             ///< row
  Lookup,    ///< dst = function(args); failing is an error
  Set,       ///< function(args but the last) = last
  Union,     ///< joins the classes of two arguments
  UnionInto, ///< constructor(args but the last) joins the class of the last; nothing is made if it
             ///< need not be
  Delete,    ///< removes the row of args
  Subsume,   ///< hides the row of args from matching and extraction
  Panic      ///< stops with a message
};

struct ActionStep {
  ActionOp op{};
  std::uint32_t target = 0; ///< function, primitive or message
  std::uint32_t dst = 0;    ///< register of the result
  std::uint32_t first = 0;  ///< where its arguments start in ActionProgram::args
  std::uint32_t count = 0;
  Span span;
};

/// Registers 0 .. inputs-1 are given, then come the constants, then the temporaries.
struct ActionProgram {
  std::uint32_t inputs = 0;
  std::uint32_t registers = 0;
  std::uint32_t result = 0; ///< register of the value (for :merge and for expressions)
  std::vector<std::pair<std::uint32_t, Value>> constants;
  std::vector<ActionStep> steps;
  std::vector<std::uint32_t> args;
  std::vector<std::string> messages;
  bool deletes = false; ///< has a Delete step
};

} // namespace egret::egraph

// Running small programs in tests.
#pragma once

#include "egraph/interpreter.h"

#include <gtest/gtest.h>

#include <string>

namespace egret::egraph::test {

/// A session that keeps what was printed.
struct Session {
  Interpreter interpreter;
  std::string output;
  Session() {
    interpreter.print = [this](const std::string& line) { output += line + "\n"; };
  }
  /// Runs a program and returns what it printed.
  std::string run(const std::string& program) {
    output.clear();
    interpreter.run_text("test.egg", program);
    return output;
  }
  std::uint32_t size(const std::string& function) {
    auto id = interpreter.engine.signature.find_function(function);
    return id ? interpreter.engine.table(*id).live() : 0xFFFFFFFFu;
  }
};

/// The message of the error that a program ends in; "" where it does not fail.
inline std::string error_of(const std::string& program) {
  try {
    Session().run(program);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

} // namespace egret::egraph::test

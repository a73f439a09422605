// Feeds texts to the parser, the type checker and a short run: whatever comes, the only outcome is
// an egret::Error.
#include "egret/egraph.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret::egraph;
  std::string_view text(reinterpret_cast<const char*>(data), size);
  // Files are the business of other tests.
  for (const char* command : {"include", "input", "output", ":file"}) {
    if (text.find(command) != std::string_view::npos)
      return 0;
  }
  static const EGraph kDeclared = [] {
    EGraph g;
    g.run_program("(datatype M (N i64) (V String) (A M M)) (relation r (M i64)) (function f (M) "
                  "i64 :merge (min old new))"
                  "(sort IV (Vec i64)) (sort MM (Map i64 M)) (ruleset s)");
    return g;
  }();
  try {
    EGraph g = kDeclared;
    g.set_budget({.seconds = 0.05, .rows = 2000, .iterations = 20});
    g.run_program(text);
  } catch (const egret::Error&) {
  }
  return 0;
}

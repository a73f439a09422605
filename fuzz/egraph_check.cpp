// Feeds texts to the parser and the type checker alone: nothing runs, so many more are tried than
// with whole programs. Whatever comes, the only outcome is an egret::Error.
#include "egraph/interpreter.h"
#include "egraph/lower.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace {

using namespace egret::egraph;

Interpreter declared() {
  Interpreter session;
  session.run_text("declared", R"((datatype M (N i64) (V String) (A M M)) (relation r (M i64))
    (function f (M) i64 :merge (min old new)) (sort IV (Vec i64)) (sort MS (MultiSet M))
    (sort MM (Map i64 M)) (sort E (Either i64 M)) (sort Fn (UnstableFn (M) M))
    (sort Fold (UnstableFn (M M) M)) (let $g (N 1)))");
  return session;
}

void check(Interpreter& session, const Sources& sources, Sexp sexp) {
  TypeChecker checker(session.engine.signature, sources, session.engine.pools);
  bool rule = sexp.head() == "rule" && sexp.size() > 2;
  if (rule) {
    checker.facts(sexp[1]);
    for (std::size_t i = 0; i < sexp[2].size(); ++i)
      checker.action(sexp[2][i]);
  } else if (sexp.head() == "rewrite" && sexp.size() > 2) {
    checker.rewrite(sexp[1], sexp[2], {}, sexp.size() > 3);
  } else if (sexp.head() == "check") {
    for (std::size_t i = 1; i < sexp.size(); ++i)
      checker.fact(sexp[i]);
  } else {
    checker.allow_reads(true);
    checker.action(sexp);
  }
  Typed typed = checker.finish();
  Lowering(session.engine.signature, sources, typed).rule(sexp.span());
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Literals are interned and stay, so the session is made anew from time to time.
  constexpr int kInputsPerSession = 20000;
  static std::unique_ptr<Interpreter> session;
  static int inputs = 0;
  if (inputs++ % kInputsPerSession == 0)
    session = std::make_unique<Interpreter>(declared());
  Sources sources;
  try {
    std::uint32_t file = sources.add("input", {reinterpret_cast<const char*>(data), size});
    Sexps program(sources, file);
    for (std::size_t i = 0; i < program.size(); ++i) {
      try {
        check(*session, sources, program[i]);
      } catch (const egret::Error&) {
      }
    }
  } catch (const egret::Error&) {
  }
  return 0;
}

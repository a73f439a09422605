// Any bytes as a grammar in GBNF and as a JSON schema, behind a first byte that chooses: an Error,
// or a grammar that a short walk over bytes agrees with.
#include "egret/grammar.h"
#include "egret/error.h"

#include <cstdlib>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0)
    return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    const egret::Grammar grammar =
        data[0] % 2 == 0 ? egret::Grammar::parse(text) : egret::Grammar::of_schema(text);
    for (const char* one : {"", "a", "{}", "{\"a\": 1}", "[1, 2]", "\"\\u00e9\"", "-12.5e3"})
      (void)grammar.matches(one);
    if (grammar.matches("\xff")) // no grammar derives what is not UTF-8
      std::abort();
  } catch (const egret::Error&) {
  }
  return 0;
}

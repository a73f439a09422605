// Any bytes as config.json of a language model: an Error that says File or Unsupported, or sizes
// within their ranges.
#include "egret/error.h"
#include "language_config.h"
#include "text/json_fields.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  try {
    models::Keys keys(text::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz"),
                      "fuzz");
    const models::language::Architecture& row =
        models::language::architecture_of(keys.text({"model_type"}), false, "fuzz");
    fuzz::check_config(keys, row);
    keys.require_all_read({});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File && error.kind() != ErrorKind::Unsupported)
      std::abort();
  }
  return 0;
}

// Any bytes as config.json of a language model: an Error that says File or Unsupported, or sizes
// within their ranges.
#include "egret/error.h"
#include "models/language/config.h"
#include "text/json_fields.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  try {
    models::language::Keys keys(
        text::parse_json({reinterpret_cast<const char*>(data), size}, "fuzz"), "fuzz");
    const models::language::Architecture& row =
        models::language::architecture_of(keys.text({"model_type"}), false, "fuzz");
    const models::LanguageConfig config = models::language::read_config(keys, row, 0);
    keys.require_all_read({});
    if (config.heads % config.kv_heads != 0 || std::ssize(config.sliding) != config.layers ||
        2 * std::ssize(config.rotary.frequencies) > config.head_size)
      std::abort();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::File && error.kind() != ErrorKind::Unsupported)
      std::abort();
  }
  return 0;
}

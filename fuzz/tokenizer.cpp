// Any bytes as a tokenizer file, and then as its text: an egret::Error, or ids that can be decoded
// to valid UTF-8.
#include "egret/tokenizer.h"
#include "egret/error.h"
#include "text/utf8.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // The file, a newline of its own, the text.
  const std::size_t cut = bytes.find("\n\n");
  const std::string_view file = bytes.substr(0, cut),
                         text = cut == std::string_view::npos ? bytes : bytes.substr(cut + 2);
  if (text.size() > 4096) // patterns may take their limit of steps at each place
    return 0;
  try {
    const Tokenizer tokenizer = Tokenizer::parse(file);
    const auto ids = tokenizer.encode(text);
    if (!text::is_utf8(tokenizer.decode(ids)))
      std::abort();
    StreamingDetokenizer stream(tokenizer);
    for (const std::int32_t id : ids)
      if (!text::is_utf8(stream.push(id)))
        std::abort();
    if (!text::is_utf8(stream.finish()))
      std::abort();
  } catch (const Error&) {
  }
  return 0;
}

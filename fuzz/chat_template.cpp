// Any bytes as a chat template: an egret::Error, or valid UTF-8 within the limits.
#include "egret/chat_template.h"
#include "egret/error.h"
#include "text/utf8.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace egret;
  try {
    const std::string text =
        ChatTemplate::parse({reinterpret_cast<const char*>(data), size})
            .render(
                R"({"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":null}],"n":3,"x":1.5})",
                {.steps = 20000, .output_bytes = 20000}, 0);
    if (text.size() > 20000 || !text::is_utf8(text))
      std::abort();
  } catch (const Error&) {
  }
  return 0;
}

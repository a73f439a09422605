// Any bytes as the body of a request: a Refusal with status 400, or fields within their ranges.
#include "serve/refusal.h"
#include "serve/request.h"
#include "text/utf8.h"

#include <cstdlib>

namespace {

template <class Read>
void check(Read&& read, std::string_view body) {
  using namespace egret::serve;
  try {
    const auto request = read(body);
    if constexpr (requires { request.stop; }) {
      for (const std::string& stop : request.stop)
        if (stop.empty() || !egret::text::is_utf8(stop))
          std::abort();
      if (request.max_tokens && *request.max_tokens < 1)
        std::abort();
      if (request.top_p && !(*request.top_p > 0 && *request.top_p <= 1))
        std::abort();
    }
  } catch (const Refusal& refusal) {
    if (refusal.status != 400 || !egret::text::is_utf8(body_of(refusal)))
      std::abort();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  check(egret::serve::read_chat_body, body);
  check(egret::serve::read_completion_body, body);
  check(egret::serve::read_tokenize_body, body);
  check(egret::serve::read_embedding_body, body);
  return 0;
}

#include "serve/request_head.h"

#include "serve/refusal.h"
#include "support/printable.h"

#include <boost/beast/core/string.hpp>
#include <fmt/format.h>

namespace egret::serve {

namespace http = boost::beast::http;

namespace {

std::string_view as_text(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

/// Behind "http://" or "https://"; npos where the target does not begin with either.
std::size_t authority_of(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (const std::string_view start = target.substr(0, scheme.size());
        boost::beast::iequals({start.data(), start.size()}, {scheme.data(), scheme.size()}))
      return scheme.size();
  return std::string_view::npos;
}

bool is_host(std::string_view text) {
  return text.find_first_of(" \t,/?#@\\") == std::string_view::npos;
}

} // namespace

TargetParts parts_of(std::string_view target) {
  const std::size_t begin = authority_of(target);
  if (begin == std::string_view::npos)
    return {{}, target};
  const std::size_t end = std::min(target.find_first_of("/?#", begin), target.size());
  const std::string_view path = target.substr(end);
  return {target.substr(begin, end - begin), path.empty() ? std::string_view("/") : path};
}

std::string_view host_of(const RequestHead& head) {
  const std::string_view named = parts_of(as_text(head.target())).host;
  return named.empty() ? as_text(head[http::field::host]) : named;
}

void require_valid(const RequestHead& head) {
  const std::size_t hosts = head.count(http::field::host);
  if (hosts > 1)
    throw Refusal(400, fmt::format("the header has {} fields 'Host'", hosts));
  if (hosts == 0 && head.version() >= 11)
    throw Refusal(400, "the header has no field 'Host'");
  if (const std::string_view host = as_text(head[http::field::host]); !is_host(host))
    throw Refusal(400, fmt::format("the field 'Host' is '{}', no host", printable(host)));
  const std::string_view target = as_text(head.target());
  if (const std::string_view host = parts_of(target).host;
      authority_of(target) != std::string_view::npos && (host.empty() || !is_host(host)))
    throw Refusal(400, fmt::format("the address '{}' has no valid host", printable(target)));
  if (head.count(http::field::transfer_encoding) == 0)
    return;
  if (head.version() < 11)
    throw Refusal(400, "HTTP/1.0 has no field 'Transfer-Encoding'");
  if (head.count(http::field::content_length) > 0)
    throw Refusal(400, "the header has both 'Content-Length' and 'Transfer-Encoding'");
  if (const std::string_view coding = as_text(head[http::field::transfer_encoding]);
      head.count(http::field::transfer_encoding) > 1 ||
      !boost::beast::iequals({coding.data(), coding.size()}, "chunked"))
    throw Refusal(400, fmt::format("the field 'Transfer-Encoding' is '{}'; it must be 'chunked'",
                                   printable(coding)));
}

} // namespace egret::serve

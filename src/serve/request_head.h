// What the head of a request of HTTP must have (RFC 9112), beside what the parser sees to.
#pragma once

#include <boost/beast/http/fields.hpp>
#include <boost/beast/http/message.hpp>
#include <string_view>

namespace egret::serve {

using RequestHead = boost::beast::http::header<true, boost::beast::http::fields>;

/// A target is a path, or a whole address with its host (absolute-form, as proxies send it).
struct TargetParts {
  std::string_view host; ///< "localhost:8080"; empty where the target is a path
  std::string_view path; ///< with its query
};
TargetParts parts_of(std::string_view target);

/// The host that a request is for: its target's, or else that of its field Host.
std::string_view host_of(const RequestHead& head);

/// Refusal(400) where the field Host is missing (HTTP/1.1), doubled or no host, where the target is
/// an address without one or with a user, and where two readers might see bodies of two lengths: a
/// Transfer-Encoding that does not end in chunks, or stands beside a Content-Length or in HTTP/1.0.
void require_valid(const RequestHead& head);

} // namespace egret::serve

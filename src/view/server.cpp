#include "view/server.h"

#include "support/fail.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/version.hpp>
#include <fmt/format.h>

#include <chrono>
#include <random>
#include <utility>

namespace egret::view {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;

constexpr std::chrono::seconds kPatience{10};
constexpr std::uint32_t kMostHeader = 16 << 10;
constexpr std::size_t kMostSessions = 64;

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i)
    token += fmt::format("{:08x}", static_cast<std::uint32_t>(random()));
  return token;
}

/// In a time that does not tell how much of them is equal.
bool equal(std::string_view a, std::string_view b) {
  if (a.size() != b.size())
    return false;
  unsigned differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    differ |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  return differ == 0;
}

struct Site {
  std::string page, path;
  std::uint16_t port = 0;
  std::size_t sessions = 0; ///< open now
};

/// Its body is the site's page or a literal.
using Response = http::response<http::span_body<const char>>;

/// Whether the field Host means the site; browsers leave out the port of HTTP.
bool is_host_of(const Site& site, std::string_view host) {
  for (const std::string_view name : {"127.0.0.1", "localhost"})
    if (host == fmt::format("{}:{}", name, site.port) || (site.port == 80 && host == name))
      return true;
  return false;
}

Response answer(const Site& site, const http::request<http::empty_body>& request) {
  const auto plain = [&](http::status status, std::string_view text) {
    Response response(status, request.version());
    response.set(http::field::content_type, "text/plain; charset=utf-8");
    response.body() = {text.data(), text.size()};
    return response;
  };
  const std::string_view host(request[http::field::host].data(), request[http::field::host].size());
  const std::string_view target(request.target().data(), request.target().size());
  Response response;
  if (request.count(http::field::host) > 1) // which of them is meant?
    response = plain(http::status::bad_request, "one field Host\n");
  else if (!is_host_of(site, host))
    response = plain(http::status::misdirected_request, "another host's name\n");
  else if (request.method() != http::verb::get && request.method() != http::verb::head)
    response = plain(http::status::method_not_allowed, "GET or HEAD\n");
  else if (!equal(target, site.path))
    response = plain(http::status::not_found, "nothing here\n");
  else {
    response = Response(http::status::ok, request.version());
    response.set(http::field::content_type, "text/html; charset=utf-8");
    response.body() = {site.page.data(), site.page.size()};
  }
  // What the page itself may do is in its own policy; this one adds what only a header can.
  response.set("Content-Security-Policy",
               "frame-ancestors 'none'; connect-src 'none'; object-src 'none'");
  response.set("X-Content-Type-Options", "nosniff");
  response.set("Referrer-Policy", "no-referrer");
  response.set("Cross-Origin-Resource-Policy", "same-origin");
  response.set(http::field::cache_control, "no-store");
  response.keep_alive(false);
  response.prepare_payload();
  if (request.method() == http::verb::head)
    response.body() = {};
  return response;
}

/// One connection: a request, its answer, the end.
class Session : public std::enable_shared_from_this<Session> {
public:
  Session(tcp::socket socket, Site& site) : stream_(std::move(socket)), site_(site) {
    ++site_.sessions;
  }
  ~Session() { --site_.sessions; }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void start() {
    parser_.header_limit(kMostHeader);
    stream_.expires_after(kPatience);
    http::async_read(stream_, buffer_, parser_,
                     [self = shared_from_this()](beast::error_code error, std::size_t) {
                       if (!error)
                         self->reply();
                     });
  }

private:
  void reply() {
    response_ = answer(site_, parser_.get());
    stream_.expires_after(kPatience);
    http::async_write(stream_, response_,
                      [self = shared_from_this()](beast::error_code, std::size_t) {
                        beast::error_code ignored;
                        self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
                      });
  }

  beast::tcp_stream stream_;
  Site& site_;
  beast::flat_buffer buffer_{kMostHeader};
  http::request_parser<http::empty_body> parser_;
  Response response_;
};

} // namespace

struct ViewServer::Impl {
  Site site; // outlives the sessions, which the context holds
  asio::io_context context{1};
  tcp::acceptor acceptor{context};
  asio::steady_timer pause{context};
  std::string address;

  void accept() {
    acceptor.async_accept([this](beast::error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted)
        return;
      if (error) { // no descriptors are left, say
        pause.expires_after(std::chrono::milliseconds(100));
        pause.async_wait([this](beast::error_code) { accept(); });
        return;
      }
      if (site.sessions < kMostSessions)
        std::make_shared<Session>(std::move(socket), site)->start();
      accept();
    });
  }
};

ViewServer::ViewServer(std::string page, std::uint16_t port) : impl_(std::make_unique<Impl>()) {
  try {
    const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
    impl_->acceptor.open(here.protocol());
    impl_->acceptor.set_option(tcp::acceptor::reuse_address(true));
    impl_->acceptor.bind(here);
    impl_->acceptor.listen();
  } catch (const boost::system::system_error& error) {
    fail(ErrorKind::File, "view: port {} of 127.0.0.1 cannot be had: {}", port,
         error.code().message());
  }
  impl_->site.page = std::move(page);
  impl_->site.path = fmt::format("/{}/", random_token());
  impl_->site.port = impl_->acceptor.local_endpoint().port();
  impl_->address = fmt::format("http://127.0.0.1:{}{}", impl_->site.port, impl_->site.path);
  impl_->accept();
}

ViewServer::~ViewServer() = default;

const std::string& ViewServer::address() const {
  return impl_->address;
}

std::uint16_t ViewServer::port() const {
  return impl_->site.port;
}

void ViewServer::run() {
  impl_->context.run();
}

void ViewServer::stop() noexcept {
  impl_->context.stop();
}

} // namespace egret::view

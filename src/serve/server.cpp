#include "egret/serve.h"

#include "serve/api.h"
#include "serve/connection.h"
#include "serve/io_loop.h"
#include "support/fail.h"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

namespace egret::serve {

namespace net = boost::asio;
using Tcp = net::ip::tcp;

namespace {

void require_valid(const ServeOptions& o) {
  const auto require = [](bool held, const char* name, auto value, const char* range) {
    if (!held)
      fail(ErrorKind::Value, "serve: {} is {}; it must be {}", name, value, range);
  };
  const auto seconds = [&](const char* name, double value) {
    require(value > 0 && value <= 1e6, name, value, "above 0 and at most 1e6");
  };
  if (o.model_name.empty())
    fail(ErrorKind::Value, "serve: model_name is empty");
  require(o.connections > 0, "connections", o.connections, "at least 1");
  require(o.body_bytes > 0, "body_bytes", o.body_bytes, "at least 1");
  require(o.max_tokens >= 0, "max_tokens", o.max_tokens, "at least 0");
  seconds("request_seconds", o.request_seconds);
  seconds("client_seconds", o.client_seconds);
}

Tcp::acceptor listening(net::io_context& io, const ServeOptions& options) {
  boost::system::error_code error;
  const net::ip::address address = net::ip::make_address(options.host, error);
  if (error)
    fail(ErrorKind::Value, "serve: '{}' is not an address (127.0.0.1, 0.0.0.0, ::1 ...)",
         options.host);
  const Tcp::endpoint endpoint(address, options.port);
  Tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), error);
  if (!error)
    acceptor.set_option(Tcp::acceptor::reuse_address(true), error);
  if (!error)
    acceptor.bind(endpoint, error);
  if (!error)
    acceptor.listen(Tcp::acceptor::max_listen_connections, error);
  if (error)
    fail(ErrorKind::State, "serve: cannot listen on {} port {}: {}", options.host, options.port,
         error.message());
  return acceptor;
}

} // namespace

void require_servable(const ServeOptions& options, const Tokenizer& tokenizer) {
  require_valid(options);
  net::io_context io{1};
  (void)listening(io, options);
  (void)template_of(tokenizer, options);
}

struct Server::Impl {
  Impl(ServedModel model, Tokenizer text, ServeOptions chosen)
      : options(std::move(chosen)), tokenizer(std::move(text)), acceptor(listening(io, options)),
        pause(io),
        engine(std::move(model), tokenizer, options.queue, options.request_seconds, metrics),
        api(engine.model(), tokenizer, options, metrics), shared{
                                                              io,
                                                              options,
                                                              metrics,
                                                              engine,
                                                              api,
                                                              false,
                                                              [this](const void* connection) { remove(connection); }} {
    accept();
    thread = std::thread([this] { run_handlers(io, metrics); });
  }

  void accept() {
    acceptor.async_accept([this](const boost::system::error_code& error, Tcp::socket socket) {
      if (!acceptor.is_open())
        return;
      if (error) { // no descriptors are left, say
        pause.expires_after(std::chrono::milliseconds(100));
        pause.async_wait([this](const boost::system::error_code& ended) {
          if (!ended)
            accept();
        });
        return;
      }
      try {
        take(std::move(socket));
      } catch (const std::exception&) { // out of memory, say: this client goes, others are served
        metrics.handler_failed();
      }
      accept();
    });
  }

  void take(Tcp::socket socket) {
    if (connections.size() < options.connections) {
      const auto connection = std::make_shared<Connection>(std::move(socket), shared);
      {
        const std::scoped_lock lock(mutex);
        connections.emplace(connection.get(), connection);
      }
      connection->start();
      return;
    }
    metrics.answered("other", 503);
    boost::system::error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(net::buffer(std::string_view("HTTP/1.1 503 Service Unavailable\r\n"
                                                   "Content-Length: 0\r\nRetry-After: 1\r\n"
                                                   "Connection: close\r\n\r\n")),
                      ignored);
  }

  void remove(const void* connection) {
    const std::scoped_lock lock(mutex);
    connections.erase(connection);
    changed.notify_all();
  }

  /// Calls a function of every connection; those may close meanwhile.
  void each(void (Connection::*call)()) {
    const auto all = connections;
    for (const auto& [key, connection] : all)
      (*connection.*call)();
  }

  void stop(double grace) {
    if (!thread.joinable())
      return;
    net::post(io, [this] {
      shared.draining = true;
      boost::system::error_code ignored;
      acceptor.close(ignored);
      pause.cancel();
      each(&Connection::drain);
      const std::scoped_lock lock(mutex);
      drained = true;
      changed.notify_all();
    });
    {
      std::unique_lock lock(mutex);
      changed.wait_for(lock, std::chrono::duration<double>(std::min(grace, 1e6)),
                       [&] { return drained && connections.empty(); });
    }
    net::post(io, [this] {
      each(&Connection::close);
      work.reset();
    });
    thread.join();
  }

  const ServeOptions options;
  const Tokenizer tokenizer;
  Metrics metrics;
  net::io_context io{1};
  net::executor_work_guard<net::io_context::executor_type> work = net::make_work_guard(io);
  Tcp::acceptor acceptor;
  net::steady_timer pause;
  const std::uint16_t port = acceptor.local_endpoint().port();
  Engine engine;
  Api api;
  Shared shared;
  std::mutex mutex; ///< of what follows, which the thread of io alone writes
  std::condition_variable changed;
  std::map<const void*, std::shared_ptr<Connection>> connections;
  bool drained = false; ///< no idle connection is left
  std::thread thread;
};

Server::Server(models::LanguageModel model, Tokenizer tokenizer, ServeOptions options) {
  require_valid(options);
  impl_ = std::make_unique<Impl>(ServedModel(std::move(model)), std::move(tokenizer),
                                 std::move(options));
}
Server::Server(models::TextEncoder model, Tokenizer tokenizer, ServeOptions options) {
  require_valid(options);
  impl_ = std::make_unique<Impl>(ServedModel(std::move(model)), std::move(tokenizer),
                                 std::move(options));
}

Server::~Server() {
  impl_->stop(0);
}

std::uint16_t Server::port() const noexcept {
  return impl_->port;
}

void Server::stop(double grace_seconds) {
  impl_->stop(std::isfinite(grace_seconds) ? std::max(grace_seconds, 0.0) : 0.0);
}

} // namespace egret::serve

#include "serve/connection.h"

#include "serve/request_head.h"
#include "support/printable.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <chrono>
#include <fmt/format.h>
#include <sstream>
#include <utility>

namespace egret::serve {

namespace net = boost::asio;
namespace http = boost::beast::http;

namespace {

constexpr std::uint32_t kMostHead = 16U << 10U;
constexpr std::size_t kMostUnsent = 8U << 20U, kMostDiscarded = 64U << 20U;
constexpr double kDrainSeconds = 1; // that a client which keeps its connection may hold back an end

std::string_view view(boost::beast::string_view text) {
  return {text.data(), text.size()};
}

std::chrono::milliseconds milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
}

} // namespace

Connection::Connection(net::ip::tcp::socket socket, Shared& shared)
    : stream_(std::move(socket)), shared_(shared) {}

void Connection::drain() {
  if (!busy_)
    close();
}

void Connection::close() {
  if (closed_)
    return;
  closed_ = true;
  if (job_)
    shared_.engine.cancel(*job_);
  job_.reset();
  const auto self = shared_from_this(); // until the end of this function
  stream_.close();
  shared_.closed(this);
}

template <class Call>
void Connection::guarded(Call&& call) {
  try {
    call();
  } catch (const std::exception&) { // out of memory, say: this connection ends, others go on
    shared_.metrics.handler_failed();
    close();
  }
}

void Connection::start() {
  Error ignored;
  stream_.socket().set_option(net::ip::tcp::no_delay(true), ignored); // tokens go out as they come
  guarded([&] { read_head(); });
}

HttpRequest Connection::request() const {
  const auto& message = parser_->get();
  return {.method = view(message.method_string()),
          .target = parts_of(view(message.target())).path,
          .host = host_of(message),
          .content_type = view(message[http::field::content_type]),
          .authorization = view(message[http::field::authorization]),
          .body = message.body()};
}

void Connection::read_head() {
  busy_ = false;
  parser_.emplace();
  parser_->header_limit(kMostHead);
  parser_->body_limit(shared_.options.body_bytes);
  stream_.expires_after(milliseconds(shared_.options.client_seconds));
  http::async_read_header(stream_, buffer_, *parser_,
                          [self = shared_from_this()](const Error& error, std::size_t) {
                            self->guarded([&] { self->on_head(error); });
                          });
}

void Connection::on_head(const Error& error) {
  if (error) {
    refuse_unreadable(error);
    return;
  }
  stream_.expires_after(milliseconds(shared_.options.client_seconds)); // for the body
  busy_ = true;
  keep_alive_ = false; // nobody knows where the next request begins
  try {
    require_valid(parser_->get());
    keep_alive_ = parser_->get().keep_alive() && parser_->is_done(); // the body is not read
    shared_.api.check_head(request());
    keep_alive_ = parser_->get().keep_alive();
  } catch (const Refusal& refusal) {
    send(reply_of(refusal));
    return;
  }
  if (!boost::beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
    read_body();
    return;
  }
  in_flight_ = "HTTP/1.1 100 Continue\r\n\r\n";
  net::async_write(stream_, net::buffer(in_flight_),
                   [self = shared_from_this()](const Error& failed, std::size_t) {
                     self->guarded([&] { failed ? self->close() : self->read_body(); });
                   });
}

void Connection::read_body() {
  http::async_read(
      stream_, buffer_, *parser_, [self = shared_from_this()](const Error& error, std::size_t) {
        self->guarded([&] { error ? self->refuse_unreadable(error) : self->handle(); });
      });
}

void Connection::refuse_unreadable(const Error& error) {
  const bool of_http =
      error.category() == http::make_error_code(http::error::bad_method).category();
  if (closed_ || !of_http || error == http::error::end_of_stream ||
      error == http::error::partial_message) {
    close(); // the client is gone, or takes too long
    return;
  }
  busy_ = true;
  keep_alive_ = false;
  if (error == http::error::body_limit)
    send(reply_of(
        Refusal(413, fmt::format("the body is longer than {} bytes", shared_.options.body_bytes))));
  else if (error == http::error::header_limit)
    send(reply_of(Refusal(431, fmt::format("the header is longer than {} bytes", kMostHead))));
  else
    send(reply_of(Refusal(400, "not a request of HTTP: " + error.message())));
}

void Connection::handle() {
  try {
    auto outcome = shared_.api.answer(request());
    if (const Reply* reply = std::get_if<Reply>(&outcome))
      send(*reply);
    else if (Generation* generation = std::get_if<Generation>(&outcome))
      begin(std::move(*generation));
    else
      begin(std::get<EmbeddingRequest>(std::move(outcome)));
  } catch (const Refusal& refusal) {
    send(reply_of(refusal));
  } catch (const std::exception& error) {
    send(reply_of(Refusal(500, error.what())));
  }
}

void Connection::begin(Generation generation) {
  if (shared_.draining)
    throw Refusal(503, "the server ends", "", "shutting_down");
  form_ = std::move(generation.form);
  texts_.assign(form_.choices, {});
  streaming_ = ended_ = false;
  const auto receive = [weak = weak_from_this(), &io = shared_.io, answer = answer_](Part part) {
    net::post(io, [weak, answer, part = std::move(part)]() mutable {
      if (const auto self = weak.lock())
        self->guarded([&] { self->on_part(answer, std::move(part)); });
    });
  };
  job_ = shared_.engine.submit(std::move(generation.job), receive);
  if (!job_)
    throw Refusal(429, "too many requests wait already; try again later", "", "queue_full");
  watch();
}

void Connection::begin(EmbeddingRequest asked) {
  if (shared_.draining)
    throw Refusal(503, "the server ends", "", "shutting_down");
  streaming_ = ended_ = false;
  const auto receive = [weak = weak_from_this(), &io = shared_.io, answer = answer_,
                        base64 = asked.base64, model = asked.model,
                        tokens = asked.tokens](Embeddings made) {
    net::post(io, [weak, answer, base64, model, tokens, made = std::move(made)] {
      if (const auto self = weak.lock(); self && answer == self->answer_ && self->job_)
        self->guarded([&] {
          self->job_.reset();
          self->send(made.failed != 0
                         ? reply_of(Refusal(made.failed, made.error))
                         : Reply{.body = embeddings_answer(model, made, base64, tokens)});
        });
    });
  };
  job_ = shared_.engine.embed(std::move(asked.texts), receive);
  if (!job_)
    throw Refusal(429, "too many requests wait already; try again later", "", "queue_full");
  watch();
}

/// Notices that the client leaves while its answer is written.
void Connection::watch() {
  stream_.expires_never();
  stream_.socket().async_wait(net::ip::tcp::socket::wait_read,
                              [self = shared_from_this(), answer = answer_](const Error& error) {
                                if (error || answer != self->answer_ || !self->job_)
                                  return;
                                char next = 0;
                                Error failed;
                                const std::size_t have = self->stream_.socket().receive(
                                    net::buffer(&next, 1), net::ip::tcp::socket::message_peek,
                                    failed);
                                if (failed || have == 0)
                                  self->close();
                                // Otherwise the client has sent its next request already.
                              });
}

void Connection::on_part(std::uint64_t answer, Part part) {
  if (closed_ || answer != answer_ || !job_)
    return;
  if (part.last)
    job_.reset();
  if (part.failed != 0 && !streaming_) {
    send(reply_of(Refusal(part.failed, part.error)));
  } else if (form_.stream) {
    stream(part);
  } else {
    const bool last = part.last;
    const Usage usage = part.usage;
    auto& text = texts_[part.choice];
    text.add(std::move(part));
    if (last)
      send({.body = whole_answer(form_, texts_, usage)});
  }
}

void Connection::stream(const Part& part) {
  if (!streaming_)
    open_stream();
  add_chunk(part.failed != 0 ? error_event(body_of(Refusal(part.failed, part.error)))
                             : part_events(form_, part));
  if (!job_) {
    ended_ = true;
    if (chunked_)
      out_ += "0\r\n\r\n";
  }
  if (out_.size() > kMostUnsent) { // the client does not read
    close();
    return;
  }
  flush();
}

template <class Message>
void Connection::set_fields(Message& message) const {
  message.set(http::field::server, "egret");
  message.keep_alive(keep_alive_ && !shared_.draining);
}

void Connection::open_stream() {
  streaming_ = true;
  chunked_ = parser_->get().version() >= 11;
  keep_alive_ = keep_alive_ && chunked_;
  http::response<http::empty_body> response(http::status::ok, parser_->get().version());
  set_fields(response);
  response.set(http::field::content_type, "text/event-stream; charset=utf-8");
  response.set(http::field::cache_control, "no-cache");
  response.chunked(chunked_);
  std::ostringstream text;
  text << response.base();
  out_ = text.str();
  shared_.metrics.answered(std::string(Api::endpoint(request().target)), 200);
  add_chunk(opening_events(form_));
}

void Connection::add_chunk(const std::string& events) {
  if (events.empty()) // would end the body
    return;
  if (chunked_)
    out_ += fmt::format("{:x}\r\n{}\r\n", events.size(), events);
  else
    out_ += events;
}

void Connection::flush() {
  if (writing_ || out_.empty())
    return;
  writing_ = true;
  in_flight_ = std::exchange(out_, {});
  stream_.expires_after(milliseconds(shared_.options.client_seconds));
  net::async_write(stream_, net::buffer(in_flight_),
                   [self = shared_from_this()](const Error& error, std::size_t) {
                     self->guarded([&] { self->on_flushed(error); });
                   });
}

void Connection::on_flushed(const Error& error) {
  writing_ = false;
  stream_.expires_never();
  if (error)
    close();
  else if (!out_.empty())
    flush();
  else if (ended_)
    next();
}

void Connection::send(const Reply& reply) {
  const auto& asked = parser_->get();
  const unsigned version = asked.version() == 10 ? 10 : 11;
  auto response = std::make_shared<http::response<http::string_body>>(
      static_cast<http::status>(reply.status), version, reply.body);
  set_fields(*response);
  response->set(http::field::content_type, reply.content_type);
  if (reply.status == 429)
    response->set(http::field::retry_after, "1");
  if (const std::string_view method = Api::method(request().target);
      reply.status == 405 && !method.empty())
    response->set(http::field::allow, boost::beast::string_view(method.data(), method.size()));
  if (reply.status == 401)
    response->set(http::field::www_authenticate, "Bearer");
  response->prepare_payload();
  if (asked.method() == http::verb::head) // its length is told, the body is not sent
    response->body().clear();
  shared_.metrics.answered(std::string(Api::endpoint(request().target)), reply.status);
  stream_.expires_after(milliseconds(shared_.options.client_seconds));
  http::async_write(stream_, *response,
                    [self = shared_from_this(), response](const Error& error, std::size_t) {
                      self->guarded([&] { error ? self->close() : self->next(); });
                    });
}

void Connection::next() {
  if (closed_)
    return;
  ++answer_;
  Error ignored;
  stream_.socket().cancel(ignored); // watch()
  if (keep_alive_ && !shared_.draining) {
    read_head();
    return;
  }
  stream_.socket().shutdown(net::ip::tcp::socket::shutdown_send, ignored);
  const double wait = shared_.options.client_seconds;
  stream_.expires_after(milliseconds(shared_.draining ? std::min(wait, kDrainSeconds) : wait));
  linger();
}

/// Reads until the client closes: a connection that is closed with something unread is reset, and
/// the client might lose the answer.
void Connection::linger() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kMostHead),
                          [self = shared_from_this()](const Error& error, std::size_t bytes) {
                            self->discarded_ += bytes;
                            const bool ends = error || self->discarded_ > kMostDiscarded;
                            self->guarded([&] { ends ? self->close() : self->linger(); });
                          });
}

} // namespace egret::serve

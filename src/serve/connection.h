// One connection of a client: requests one after the other, each answered before the next is read.
#pragma once

#include "serve/api.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace egret::serve {

/// What connections share; used by the thread of `io` only.
struct Shared {
  boost::asio::io_context& io;
  const ServeOptions& options;
  Metrics& metrics;
  Engine& engine;
  const Api& api;
  bool draining = false; ///< connections close behind the answer that is under way
  std::function<void(const void* connection)> closed;
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
  Connection(boost::asio::ip::tcp::socket socket, Shared& shared);

  void start();
  void drain(); ///< closes unless a request is under way
  void close(); ///< now; cancels the job under way

private:
  using Error = boost::beast::error_code;

  void read_head();
  void on_head(const Error& error);
  void read_body();
  void refuse_unreadable(const Error& error);
  void handle();
  void begin(Generation generation);
  void begin(EmbeddingRequest asked);
  void watch();
  void on_part(std::uint64_t answer, Part part);
  void stream(const Part& part);
  void open_stream();
  void add_chunk(const std::string& events);
  void flush();
  void on_flushed(const Error& error);
  void send(const Reply& reply);
  void next();
  void linger();
  /// A step of this connection, which closes where it throws.
  template <class Call>
  void guarded(Call&& call);

  HttpRequest request() const;
  template <class Message>
  void set_fields(Message& message) const;

  boost::beast::tcp_stream stream_;
  Shared& shared_;
  /// Bounded, as a chunk's extension and trailers have no limit of their own.
  boost::beast::flat_buffer buffer_{128U << 10U};
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  bool busy_ = false, closed_ = false, keep_alive_ = false;
  std::uint64_t answer_ = 0;      ///< number of the request under way
  std::optional<Engine::Id> job_; ///< that it waits for
  AnswerForm form_;
  std::vector<ChoiceAnswer> texts_; ///< of an answer that is not streamed, so far
  bool streaming_ = false, ended_ = false, writing_ = false;
  bool chunked_ = true;
  std::string out_, in_flight_; ///< of a stream: to be written, being written
  std::size_t discarded_ = 0;
};

} // namespace egret::serve

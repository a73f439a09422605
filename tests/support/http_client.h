// A client of HTTP/1.1 over a socket to this machine, for tests of servers.
#pragma once

#include <algorithm>
#include <arpa/inet.h>
#include <cstdint>
#include <map>
#include <netinet/in.h>
#include <stdexcept>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace egret::test {

struct HttpResponse {
  int status = 0;
  std::map<std::string, std::string> fields; ///< names in lower case
  std::string body;                          ///< chunks put together
};

/// A connection. Errors, and 120 seconds without a byte, are std::runtime_error.
class HttpClient {
public:
  explicit HttpClient(std::uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval limit = {.tv_sec = 120, .tv_usec = 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(fd_);
      throw std::runtime_error("cannot connect");
    }
  }
  ~HttpClient() { close(fd_); }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0)
        throw std::runtime_error("cannot send");
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  /// A request; `fields` are lines that end in \r\n each.
  void request(const std::string& method, const std::string& target, const std::string& body = {},
               const std::string& fields = "Content-Type: application/json\r\n") {
    send(method + " " + target + " HTTP/1.1\r\nHost: localhost\r\n" + fields +
         (body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n") + "\r\n" +
         body);
  }

  /// The bytes up to and with a mark.
  std::string read_to(std::string_view mark) {
    std::size_t at = 0;
    while ((at = held_.find(mark)) == std::string::npos)
      if (!more())
        throw std::runtime_error("the connection ended before '" + std::string(mark) +
                                 "': " + held_);
    return take(at + mark.size());
  }
  HttpResponse response() {
    HttpResponse r = head();
    r.body = body(r);
    return r;
  }
  /// The status and the fields alone.
  HttpResponse head() {
    HttpResponse r;
    const std::string line = read_to("\r\n");
    r.status = std::stoi(line.substr(9, 3));
    for (std::string field = read_to("\r\n"); field != "\r\n"; field = read_to("\r\n")) {
      const std::size_t colon = field.find(':');
      std::string name = field.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(),
                     [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
      const std::size_t begin = field.find_first_not_of(' ', colon + 1);
      r.fields[name] = field.substr(begin, field.size() - 2 - begin);
    }
    return r;
  }
  /// What follows a head.
  std::string body(const HttpResponse& head) {
    if (head.fields.contains("transfer-encoding")) {
      std::string all;
      for (std::string chunk = next_chunk(); !chunk.empty(); chunk = next_chunk())
        all += chunk;
      return all;
    }
    if (const auto length = head.fields.find("content-length"); length != head.fields.end())
      return read(std::stoul(length->second));
    while (more()) {
    }
    return take(held_.size());
  }
  /// A chunk of a chunked body; empty at its end.
  std::string next_chunk() {
    const std::size_t size = std::stoul(read_to("\r\n"), nullptr, 16);
    std::string chunk = read(size);
    read_to("\r\n");
    return chunk;
  }
  /// Closing will reset the connection, as where a client's machine goes away.
  void reset_at_close() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  /// Whether the server has closed the connection with nothing more to read.
  bool ended() { return held_.empty() && !more(); }

private:
  bool more() {
    char buffer[4096];
    const ssize_t n = recv(fd_, buffer, sizeof(buffer), 0);
    if (n < 0)
      throw std::runtime_error("cannot receive");
    held_.append(buffer, static_cast<std::size_t>(n));
    return n > 0;
  }
  std::string take(std::size_t count) {
    std::string taken = held_.substr(0, count);
    held_.erase(0, count);
    return taken;
  }
  std::string read(std::size_t count) {
    while (held_.size() < count)
      if (!more())
        throw std::runtime_error("the connection ended within a body");
    return take(count);
  }

  int fd_;
  std::string held_;
};

/// One request on a connection of its own.
inline HttpResponse http(std::uint16_t port, const std::string& method, const std::string& target,
                         const std::string& body = {},
                         const std::string& fields = "Content-Type: application/json\r\n") {
  HttpClient client(port);
  client.request(method, target, body, fields);
  return client.response();
}

} // namespace egret::test

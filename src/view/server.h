// One page served to this machine's browsers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace egret::view {

/// Serves one document over HTTP on 127.0.0.1, to who knows its address: the path holds 128 random
/// bits, and every other path, method and host name is refused. Connections have 10 seconds; of
/// more than 64 at a time the others are closed.
class ViewServer {
public:
  /// `port` 0: any that is free. Error(File) naming the port where it is in use.
  ViewServer(std::string page, std::uint16_t port);
  ~ViewServer();
  ViewServer(const ViewServer&) = delete;
  ViewServer& operator=(const ViewServer&) = delete;

  const std::string& address() const; ///< "http://127.0.0.1:PORT/TOKEN/"
  std::uint16_t port() const;
  void run();           ///< until stop()
  void stop() noexcept; ///< from any thread

private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

} // namespace egret::view

// The loop of the thread that serves connections.
#pragma once

#include "serve/metrics.h"

#include <boost/asio/io_context.hpp>
#include <exception>

namespace egret::serve {

/// Runs handlers until there is no more work. What one of them throws is counted, and the others go
/// on.
inline void run_handlers(boost::asio::io_context& io, Metrics& metrics) {
  for (;;)
    try {
      io.run();
      return;
    } catch (const std::exception&) {
      metrics.handler_failed();
    }
}

} // namespace egret::serve

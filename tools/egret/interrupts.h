// Control-C as a request to end what runs, not the program.
#pragma once

#include <atomic>
#include <csignal>

namespace egret::tool {

/// Exit code of a command that control-C ended.
inline constexpr int kInterrupted = 130;

/// Takes control-C while it lives. The third press without a clear() between ends the program at
/// once: something runs that looks at no request.
class Interrupts {
public:
  /// What happens to a read from a terminal or a pipe that waits when control-C comes.
  enum class Reads { ReturnEarly, GoOn };
  explicit Interrupts(Reads reads);
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  /// Set by control-C.
  static const std::atomic<bool>& requested() noexcept;
  static void clear() noexcept;

private:
  struct sigaction before_ = {};
};

} // namespace egret::tool

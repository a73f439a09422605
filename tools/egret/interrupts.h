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
  /// Whether SIGTERM is taken for control-C.
  enum class Also { Nothing, Terminate };
  explicit Interrupts(Reads reads, Also also = Also::Nothing);
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;
  ~Interrupts();

  /// Set by control-C.
  static const std::atomic<bool>& requested() noexcept;
  static void clear() noexcept;

private:
  const Also also_;
  struct sigaction before_ = {}, terminate_before_ = {};
};

} // namespace egret::tool

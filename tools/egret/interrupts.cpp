#include "interrupts.h"

#include <signal.h>
#include <unistd.h>

namespace egret::tool {

namespace {

std::atomic<bool> interrupted{false};
std::atomic<int> presses{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_interrupt(int) {
  constexpr int kEnough = 3;
  if (++presses >= kEnough)
    _exit(kInterrupted);
  interrupted = true;
}

} // namespace

Interrupts::Interrupts(Reads reads, Also also) : also_(also) {
  struct sigaction action = {};
  action.sa_handler = on_interrupt;
  action.sa_flags = reads == Reads::GoOn ? SA_RESTART : 0;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_);
  if (also_ == Also::Terminate)
    sigaction(SIGTERM, &action, &terminate_before_);
}

Interrupts::~Interrupts() {
  sigaction(SIGINT, &before_, nullptr);
  if (also_ == Also::Terminate)
    sigaction(SIGTERM, &terminate_before_, nullptr);
}

const std::atomic<bool>& Interrupts::requested() noexcept {
  return interrupted;
}

void Interrupts::clear() noexcept {
  interrupted = false;
  presses = 0;
}

} // namespace egret::tool

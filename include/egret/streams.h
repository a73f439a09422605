// When recorded operations run: without being read, together, and behind the caller's back.
#pragma once

#include "egret/tensor.h"

#include <concepts>
#include <cstdint>
#include <span>

namespace egret {

/// How much a thread records before what it has recorded is run although nothing is read. Loops
/// without reads so have bounded memory and keep the device at work.
struct QueueLimits {
  /// That nothing has computed yet and no gradient may need.
  std::uint64_t operations = 4096;
  /// Of memory of tensors made from data since the queue ran last, which operations may wait to
  /// read.
  std::uint64_t bytes = std::uint64_t{1} << 30;
};
/// For all threads. At the start what EGRET_QUEUE_OPS and EGRET_QUEUE_MB say. Error(Value) unless
/// operations are 1 to 1000000 and bytes are above 0; nothing changes then.
///
/// The queue runs where a Tensor variable gets another value (`x = ...`, `x += ...`) once a limit
/// is reached, and while more is recorded once it is reached twice. It stores what reading all
/// values that this thread has recorded and that something holds would store. An error there is
/// nobody's: what was pending is pending still, and a read throws it.
void set_queue_limits(const QueueLimits& limits);
QueueLimits queue_limits() noexcept;

/// Runs what this thread has recorded and something holds, and waits until the devices that it
/// has used, and the device in use, have nothing to do.
void sync(); ///< to be called as egret::sync(): <unistd.h> declares another one

/// Computes several values in one plan.
template <std::same_as<Tensor>... T>
requires(sizeof...(T) > 1) void eval(const T&... tensors) {
  eval({tensors...});
}

/// Computes values, in one plan, on a thread of egret's own: returns at once, and whoever reads one
/// of them waits for it. What nothing holds any more by then is not computed. When 256 calls wait
/// for that thread, the caller's computes. An error is nobody's: the values are pending still, and
/// a read throws it. Error(State) for empty tensors, and for values that are not known yet, as
/// within a traced function.
void async_eval(std::span<const Tensor> tensors);
template <std::same_as<Tensor>... T>
void async_eval(const Tensor& first, const T&... others) {
  const Tensor all[] = {first, others...};
  async_eval(std::span<const Tensor>(all));
}

} // namespace egret

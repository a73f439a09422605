#include "compiler/trial_bytes.h"

#include "kernel/serialize.h"
#include "support/fail.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace egret::compiler {
namespace {

// Words and texts one after the other.
class Out {
public:
  template <class T>
  requires std::is_arithmetic_v<T>
  void add(T value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void add(std::string_view text) {
    add(text.size());
    bytes += text;
  }
  template <class T>
  void add(const std::vector<T>& list) {
    add(list.size());
    for (const T& item : list)
      add(item);
  }
  std::string bytes;
};

class In {
public:
  explicit In(std::string_view bytes) : bytes_(bytes) {}
  template <class T>
  T word() {
    T value;
    std::memcpy(&value, piece(sizeof value).data(), sizeof value);
    return value;
  }
  std::string_view text() { return piece(word<std::size_t>()); }
  template <class T>
  std::vector<T> list() {
    std::vector<T> all(std::min(word<std::size_t>(), bytes_.size() / sizeof(T)));
    for (T& item : all)
      item = word<T>();
    return all;
  }

private:
  std::string_view piece(std::size_t size) {
    if (size > bytes_.size())
      fail(ErrorKind::File, "worker: a message of too few bytes");
    const std::string_view result = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return result;
  }
  std::string_view bytes_;
};

// Waits until the socket can do what `events` says; false when time is over first.
bool ready(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left < 0)
      return false;
    pollfd entry{socket, events, 0};
    const int found = poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left + 1, 100000)));
    if (found > 0)
      return true;
    if (found < 0 && errno != EINTR)
      return true; // the call that follows tells
  }
}

Exchange send_all(int socket, const char* from, std::size_t bytes, Clock::time_point deadline) {
  while (bytes > 0) {
    if (!ready(socket, POLLOUT, deadline))
      return Exchange::Late;
    const ssize_t sent = send(socket, from, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (sent <= 0)
      return Exchange::Closed;
    from += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return Exchange::Done;
}

Exchange receive_all(int socket, char* to, std::size_t bytes, Clock::time_point deadline) {
  while (bytes > 0) {
    if (!ready(socket, POLLIN, deadline))
      return Exchange::Late;
    const ssize_t got = recv(socket, to, bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (got <= 0)
      return Exchange::Closed;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return Exchange::Done;
}

Exchange send_until(int socket, const std::string& message, Clock::time_point deadline) {
  const std::uint64_t size = message.size();
  const Exchange head =
      send_all(socket, reinterpret_cast<const char*>(&size), sizeof size, deadline);
  return head == Exchange::Done ? send_all(socket, message.data(), size, deadline) : head;
}

Exchange receive_until(int socket, std::string& message, Clock::time_point deadline) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 30;
  std::uint64_t size = 0;
  const Exchange head = receive_all(socket, reinterpret_cast<char*>(&size), sizeof size, deadline);
  if (head != Exchange::Done)
    return head;
  if (size > kMost)
    return Exchange::Closed;
  message.resize(size);
  return receive_all(socket, message.data(), size, deadline);
}

} // namespace

std::string to_bytes(const Trial& trial, const std::string& device) {
  Out out;
  out.add(device);
  out.add(kernel::to_bytes(trial.region));
  out.add(kernel::to_bytes(trial.program));
  out.add(trial.sizes.values().size());
  for (const auto& [symbol, value] : trial.sizes.values()) {
    out.add(symbol.str());
    for (std::int64_t fact : {symbol.lower(), symbol.upper(), symbol.divisor(), value})
      out.add(fact);
  }
  const auto& check = trial.check;
  out.add(trial.verify);
  out.add(trial.repetitions);
  out.add(check.seed);
  out.add(check.special_values);
  out.add(check.share_aliases);
  out.add(check.scale);
  out.add(check.complete_work);
  out.add(check.sample_work);
  out.add(check.samples);
  out.add(check.tiles);
  return std::move(out.bytes);
}

Trial trial_of_bytes(std::string_view bytes, std::string& device) {
  In in(bytes);
  Trial trial;
  device = in.text();
  trial.region = kernel::region_of_bytes(in.text());
  trial.program = kernel::program_of_bytes(in.text());
  for (auto count = in.word<std::size_t>(); count > 0; --count) {
    const std::string name(in.text());
    const auto lower = in.word<std::int64_t>(), upper = in.word<std::int64_t>(),
               divisor = in.word<std::int64_t>(), value = in.word<std::int64_t>();
    trial.sizes.set(Expr::symbol(name, lower, upper, divisor), value);
  }
  auto& check = trial.check;
  trial.verify = in.word<bool>();
  trial.repetitions = in.word<int>();
  check.seed = in.word<std::uint64_t>();
  check.special_values = in.word<bool>();
  check.share_aliases = in.word<bool>();
  check.scale = in.word<double>();
  check.complete_work = in.word<std::int64_t>();
  check.sample_work = in.word<std::int64_t>();
  check.samples = in.word<std::int64_t>();
  check.tiles = in.list<std::int64_t>();
  return trial;
}

std::string to_bytes(const Verdict& verdict) {
  Out out;
  out.add(static_cast<int>(verdict.state));
  out.add(static_cast<int>(verdict.reason));
  out.add(verdict.message);
  out.add(verdict.compile_seconds);
  out.add(verdict.seconds);
  out.add(verdict.checked);
  out.add(verdict.complete);
  return std::move(out.bytes);
}

Verdict verdict_of_bytes(std::string_view bytes) {
  In in(bytes);
  Verdict verdict;
  verdict.state = static_cast<Verdict::State>(in.word<int>());
  verdict.reason = static_cast<Verdict::Reason>(in.word<int>());
  verdict.message = in.text();
  verdict.compile_seconds = in.word<double>();
  verdict.seconds = in.list<double>();
  verdict.checked = in.word<std::int64_t>();
  verdict.complete = in.word<bool>();
  return verdict;
}

Exchange exchange(int socket, const std::string& message, std::string& answer,
                  Clock::time_point deadline) {
  const Exchange sent = send_until(socket, message, deadline);
  return sent == Exchange::Done ? receive_until(socket, answer, deadline) : sent;
}

bool send_message(int socket, const std::string& message) {
  return send_until(socket, message, Clock::time_point::max()) == Exchange::Done;
}

bool receive_message(int socket, std::string& message) {
  return receive_until(socket, message, Clock::time_point::max()) == Exchange::Done;
}

} // namespace egret::compiler

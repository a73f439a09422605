#include "compiler/measurement_bytes.h"

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
    if constexpr (std::is_same_v<T, bool>) { // other bytes would be no bool
      return word<std::uint8_t>() != 0;
    } else {
      T value;
      std::memcpy(&value, piece(sizeof value).data(), sizeof value);
      return value;
    }
  }
  /// A word of an enumeration that ends with `last`.
  template <class E>
  E word_of(E last) {
    const int number = word<int>();
    if (number < 0 || number > static_cast<int>(last))
      fail(ErrorKind::File, "worker: a message with the unknown word {}", number);
    return static_cast<E>(number);
  }
  void end() const {
    if (!bytes_.empty())
      fail(ErrorKind::File, "worker: a message with {} bytes too many", bytes_.size());
  }
  std::string_view text() { return piece(word<std::size_t>()); }
  template <class T>
  std::vector<T> list() {
    const auto count = word<std::size_t>();
    if (count > bytes_.size() / sizeof(T))
      fail(ErrorKind::File, "worker: a message with a list of {} in {} bytes", count,
           bytes_.size());
    std::vector<T> all(count);
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

void add_sizes(Out& out, const backend::reference::Bindings& sizes) {
  out.add(sizes.values().size());
  for (const auto& [symbol, value] : sizes.values()) {
    out.add(symbol.str());
    for (std::int64_t fact : {symbol.lower(), symbol.upper(), symbol.divisor(), value})
      out.add(fact);
  }
}

void add_check(Out& out, const backend::reference::KernelCheckOptions& check) {
  out.add(check.seed);
  out.add(check.special_values);
  out.add(check.share_aliases);
  out.add(check.scale);
  out.add(check.complete_work);
  out.add(check.sample_work);
  out.add(check.samples);
  out.add(check.tiles);
}

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
  // Memory for what comes, not for what was announced.
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
  message.clear();
  while (message.size() < size) {
    const std::size_t before = message.size();
    message.resize(std::min(size, before + std::max<std::uint64_t>(kPiece, before)));
    const Exchange piece =
        receive_all(socket, message.data() + before, message.size() - before, deadline);
    if (piece != Exchange::Done)
      return piece;
  }
  return Exchange::Done;
}

} // namespace

std::string to_bytes(const CandidateMeasurement& measurement, const std::string& device) {
  Out out;
  out.add(device);
  out.add(kernel::to_bytes(measurement.region));
  out.add(kernel::to_bytes(measurement.program));
  for (const auto* list : {&measurement.baselines, &measurement.ahead}) {
    out.add(list->size());
    for (const kernel::KernelProgram& program : *list)
      out.add(kernel::to_bytes(program));
  }
  add_sizes(out, measurement.sizes);
  add_check(out, measurement.check);
  out.add(measurement.verify);
  out.add(measurement.workers);
  out.add(measurement.repetitions);
  out.add(measurement.sample_seconds);
  out.add(measurement.give_up);
  out.add(measurement.cold);
  return std::move(out.bytes);
}

std::string check_key(const CandidateMeasurement& measurement) {
  Out out;
  out.add(kernel::to_bytes(measurement.region));
  add_sizes(out, measurement.sizes);
  add_check(out, measurement.check);
  return std::move(out.bytes);
}

std::string timing_key(const CandidateMeasurement& measurement) {
  Out out;
  out.add(kernel::to_bytes(measurement.region));
  add_sizes(out, measurement.sizes);
  out.add(measurement.check.seed);
  out.add(measurement.cold);
  return std::move(out.bytes);
}

CandidateMeasurement measurement_of_bytes(std::string_view bytes, std::string& device) {
  In in(bytes);
  CandidateMeasurement measurement;
  device = in.text();
  measurement.region = kernel::region_of_bytes(in.text());
  measurement.program = kernel::program_of_bytes(in.text());
  for (auto* list : {&measurement.baselines, &measurement.ahead})
    for (auto count = in.word<std::size_t>(); count > 0; --count)
      list->push_back(kernel::program_of_bytes(in.text()));
  for (auto count = in.word<std::size_t>(); count > 0; --count) {
    const std::string name(in.text());
    const auto lower = in.word<std::int64_t>(), upper = in.word<std::int64_t>(),
               divisor = in.word<std::int64_t>(), value = in.word<std::int64_t>();
    if (lower > upper || divisor < 1 || value < lower || value > upper || value % divisor != 0)
      fail(ErrorKind::File, "worker: size {} is {}, which cannot be", name, value);
    measurement.sizes.set(Expr::symbol(name, lower, upper, divisor), value);
  }
  auto& check = measurement.check;
  check.seed = in.word<std::uint64_t>();
  check.special_values = in.word<bool>();
  check.share_aliases = in.word<bool>();
  check.scale = in.word<double>();
  check.complete_work = in.word<std::int64_t>();
  check.sample_work = in.word<std::int64_t>();
  check.samples = in.word<std::int64_t>();
  check.tiles = in.list<std::int64_t>();
  measurement.verify = in.word<bool>();
  measurement.workers = in.word<int>();
  measurement.repetitions = in.word<int>();
  measurement.sample_seconds = in.word<double>();
  measurement.give_up = in.word<double>();
  measurement.cold = in.word<bool>();
  in.end();
  return measurement;
}

std::string to_bytes(const MeasurementResult& outcome) {
  Out out;
  out.add(static_cast<int>(outcome.state));
  out.add(static_cast<int>(outcome.reason));
  out.add(outcome.message);
  out.add(outcome.compile_seconds);
  out.add(outcome.seconds);
  out.add(outcome.baseline_seconds.size());
  for (const auto& seconds : outcome.baseline_seconds)
    out.add(seconds);
  out.add(outcome.checked);
  out.add(outcome.complete);
  out.add(outcome.worst);
  return std::move(out.bytes);
}

MeasurementResult result_of_bytes(std::string_view bytes) {
  In in(bytes);
  MeasurementResult outcome;
  outcome.state = in.word_of(MeasurementResult::State::Rejected);
  outcome.reason = in.word_of(MeasurementResult::Reason::Device);
  outcome.message = in.text();
  outcome.compile_seconds = in.word<double>();
  outcome.seconds = in.list<double>();
  for (auto count = in.word<std::size_t>(); count > 0; --count)
    outcome.baseline_seconds.push_back(in.list<double>());
  outcome.checked = in.word<std::int64_t>();
  outcome.complete = in.word<bool>();
  outcome.worst = in.word<double>();
  in.end();
  return outcome;
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

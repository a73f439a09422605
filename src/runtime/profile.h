// Observers of what the runtime does, for records, profiles and traces.
#pragma once

#include "backend/reference/host_array.h"
#include "compiler/compiled.h"
#include "compiler/options.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {
class OriginRecord;
}

namespace egret::runtime {

class Program;

using TimePoint = std::chrono::steady_clock::time_point;

struct LaunchRecord {
  const compiler::KernelReport& kernel;
  TimePoint begin, end;                 ///< the device is waited for before `end`
  const compiler::LaunchValues& values; ///< of CompileReport::graph
  /// What the launch stored, by place in values.outputs. Only during the call.
  std::function<backend::reference::HostArray(std::size_t output)> stored;
};

struct CopyRecord {
  std::string_view what; ///< "to cuda:0", "from cuda:0", "cpu to cuda:0"
  std::size_t bytes;
  TimePoint begin, end;
};

/// A pool's memory behind an allocation or a release.
struct MemoryRecord {
  std::string_view device;
  TimePoint at;
  std::size_t in_use, reserved;
};

/// A program that was compiled while it was seen, and where the nodes of its graph come from.
struct CompiledRecord {
  const std::shared_ptr<const Program>& program;
  const std::shared_ptr<compiler::OriginRecord>& origins;
};

/// A Range of the user's that has ended.
struct RangeRecord {
  std::string_view name;
  TimePoint begin, end;
};

/// What is called, each by the thread that did it; those that are empty are not. While one has
/// `launch`, launches run one by one and are waited for.
struct Observer {
  std::function<void(const LaunchRecord&)> launch = {};
  std::function<void(const CopyRecord&)> copy = {};
  std::function<void(const MemoryRecord&)> memory = {}; ///< must not allocate from a pool
  std::function<void(const compiler::PassEvent&)> pass = {};
  std::function<void(const CompiledRecord&)> compiled = {};
  std::function<void(const RangeRecord&)> range = {}; ///< must not throw
};

/// While one lives, its observer is called; a call that another thread has begun may end later.
class Observing {
public:
  explicit Observing(Observer observer);
  ~Observing();
  Observing(const Observing&) = delete;
  Observing& operator=(const Observing&) = delete;

private:
  std::shared_ptr<const Observer> observer_;
};

/// Those that are called now; null most of the time.
using Observers = std::shared_ptr<const std::vector<std::shared_ptr<const Observer>>>;
Observers observers();
/// Whether one of them sees launches.
bool launches_are_seen(const Observers& observers);

/// Copies, and tells observers of it; `what` is asked for only then.
void observed_copy(const std::function<std::string()>& what, std::size_t bytes,
                   const std::function<void()>& copy);

/// Calls `member` of every observer that has one.
template <class Event>
void tell(const Observers& observers, std::function<void(const Event&)> Observer::*member,
          const Event& event) {
  if (!observers)
    return;
  for (const auto& observer : *observers)
    if (const auto& call = (*observer).*member)
      call(event);
}

} // namespace egret::runtime

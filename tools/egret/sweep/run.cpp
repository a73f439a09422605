// Many draws: in a process of their own, so that one that hangs or dies takes no other with it.
#include "sweep/sweep.h"

#include "console.h"
#include "egret/error.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace egret::tool::sweep {

namespace {

using Clock = std::chrono::steady_clock;

/// What a process may take before its first draw, in seconds: a device starts.
constexpr double kStart = 60;

void send(int to, const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t now = ::write(to, text.data() + done, text.size() - done);
    if (now < 0 && errno != EINTR)
      ::_exit(1);
    done += now > 0 ? static_cast<std::size_t>(now) : 0;
  }
}

/// What the process does: draws from `first` on. A draw that fails is the last one: a device may be
/// unusable after an error.
void work(const Kind& kind, const Options& options, const std::vector<std::uint64_t>& list,
          std::size_t first, const std::function<void()>& prepare, int to) {
  double mb = options.mb;
  try {
    prepare();
    mb = mb > 0 ? mb : default_mb();
    send(to, {{"mb", mb}});
  } catch (const std::exception& error) {
    return send(to, {{"fatal", error.what()}});
  }
  for (std::size_t i = first; i < list.size(); ++i) {
    Json line;
    try {
      line = drawn_line(kind, options, mb, list[i]);
    } catch (const std::exception& error) {
      return send(to, {{"fatal", error.what()}});
    }
    try {
      measure(kind, line, options);
      send(to, line);
    } catch (const std::exception& error) {
      line["ok"] = false;
      line["error"] = error.what();
      return send(to, line);
    }
  }
}

class Process {
public:
  Process(const Kind& kind, const Options& options, const std::vector<std::uint64_t>& list,
          std::size_t first, const std::function<void()>& prepare) {
    int ends[2];
    if (::pipe(ends) != 0)
      throw Error(ErrorKind::Device, fmt::format("sweep: no pipe: {}", std::strerror(errno)));
    flush_stdout();
    const pid_t parent = ::getpid();
    child_ = ::fork();
    if (child_ == 0) {
      ::close(ends[0]);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent)
        ::_exit(1);
      work(kind, options, list, first, prepare, ends[1]);
      ::_exit(0);
    }
    ::close(ends[1]);
    from_ = ends[0];
    if (child_ < 0)
      throw Error(ErrorKind::Device, fmt::format("sweep: no process: {}", std::strerror(errno)));
  }
  ~Process() {
    if (!ended_) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
    ::close(from_);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  /// The next line; nothing, and how it ended, when there is none within so many seconds.
  std::optional<Json> next(double seconds, std::string& why) {
    const auto end = Clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      const std::size_t at = text_.find('\n');
      if (at != std::string::npos) {
        Json line = Json::parse(text_.substr(0, at));
        text_.erase(0, at + 1);
        return line;
      }
      const double left = std::chrono::duration<double>(end - Clock::now()).count();
      pollfd waited{from_, POLLIN, 0};
      const int ready =
          left > 0 ? ::poll(&waited, 1, static_cast<int>(std::min(left, 1e6) * 1e3) + 1) : 0;
      if (ready == 0) {
        why = fmt::format("time-out after {:.0f} s", seconds);
        return {};
      }
      char buffer[65536];
      const ssize_t count = ready > 0 ? ::read(from_, buffer, sizeof buffer) : -1;
      if (count < 0 && errno == EINTR)
        continue;
      if (count <= 0) {
        why = ending();
        return {};
      }
      text_.append(buffer, static_cast<std::size_t>(count));
    }
  }

private:
  std::string ending() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    ended_ = true;
    return WIFSIGNALED(status) ? fmt::format("ended by signal {} ({})", WTERMSIG(status),
                                             ::strsignal(WTERMSIG(status)))
                               : fmt::format("ended with code {}", WEXITSTATUS(status));
  }

  pid_t child_ = -1;
  int from_ = -1;
  bool ended_ = false;
  std::string text_;
};

std::string shortened(const Json& params) {
  const std::string text = params.dump();
  return text.size() <= 100 ? text : text.substr(0, 97) + "...";
}

void print(const Json& line, const Options& options) {
  if (options.json) {
    fmt::print("{}\n", line.dump());
  } else if (!line.contains("ms_median")) {
    fmt::print("{:<12} {:>5}  FAILED: {}\n", line.at("kind").get<std::string>(),
               line.at("index").get<std::uint64_t>(), line.at("error").get<std::string>());
  } else {
    fmt::print("{:<12} {:>5} {:>10.4f} {:>10.4f} {:>6.3f} {:<6} {:>7} {:>9.2f}  {}  {}\n",
               line.at("kind").get<std::string>(), line.at("index").get<std::uint64_t>(),
               line.at("ms_median").get<double>(), line.at("floor_ms").get<double>(),
               line.at("of_roofline").get<double>(), line.at("limit").get<std::string>(),
               line.at("kernels").get<std::uint64_t>(), line.at("compile_seconds").get<double>(),
               line.at("ok").get<bool>() ? "yes" : "NO: " + line.at("error").get<std::string>(),
               shortened(line.at("params")));
  }
  flush_stdout();
}

void print_summary(const Json& s, const Options& options) {
  if (options.json) {
    fmt::print("{}\n", Json{{"summary", s}}.dump());
    return;
  }
  const std::string kind = s.at("kind").get<std::string>();
  fmt::print("\n{}: {} draws, {} failed\n", kind, s.at("count").get<int>(), s.at("failed").size());
  for (const Json& line : s.at("failed"))
    fmt::print("  --only {}: {}\n    {}\n", line.at("index").get<std::uint64_t>(),
               line.at("error").get<std::string>(), line.at("params").dump());
  if (!s.at("worst_draws").empty())
    fmt::print(
        "  of roofline: geometric mean {:.3f}, median {:.3f}, worst {:.3f}, {:.0f} % below 0.25\n",
        s.at("geometric_mean").get<double>(), s.at("median").get<double>(),
        s.at("worst").get<double>(), 100 * s.at("below_quarter").get<double>());
  for (const Json& line : s.at("worst_draws")) {
    fmt::print("  {:.3f} ({:.4f} ms, {}) --only {}\n    {}\n", line.at("of_roofline").get<double>(),
               line.at("ms_median").get<double>(), line.at("limit").get<std::string>(),
               line.at("index").get<std::uint64_t>(), line.at("params").dump());
    for (const Json& schedule : line.at("schedules"))
      fmt::print("    {}\n", schedule.get<std::string>());
  }
  fmt::print("\n");
}

std::vector<Json> run_kind(const Kind& kind, const Options& options,
                           const std::vector<std::uint64_t>& list,
                           const std::function<void()>& prepare) {
  std::vector<Json> lines;
  double mb = options.mb;
  while (lines.size() < list.size()) {
    Process process(kind, options, list, lines.size(), prepare);
    std::string why;
    const std::optional<Json> hello = process.next(kStart, why);
    if (!hello || hello->contains("fatal"))
      throw Error(ErrorKind::Device,
                  hello ? hello->at("fatal").get<std::string>() : "sweep: the device: " + why);
    mb = hello->at("mb").get<double>();
    for (bool going = true; going && lines.size() < list.size();) {
      std::optional<Json> line = process.next(options.timeout, why);
      if (line && line->contains("fatal"))
        throw Error(ErrorKind::Value, line->at("fatal").get<std::string>());
      if (!line) {
        line = drawn_line(kind, options, mb, list[lines.size()]);
        (*line)["ok"] = false;
        (*line)["error"] = why;
      }
      going = line->contains("ms_median");
      print(*line, options);
      lines.push_back(std::move(*line));
    }
  }
  return lines;
}

} // namespace

Json summary(const std::vector<Json>& lines) {
  Json failed = Json::array();
  std::vector<Json> good;
  for (const Json& line : lines)
    if (line.at("ok").get<bool>())
      good.push_back(line);
    else
      failed.push_back(line);
  std::stable_sort(good.begin(), good.end(), [](const Json& a, const Json& b) {
    return a.at("of_roofline").get<double>() < b.at("of_roofline").get<double>();
  });
  Json result = {{"kind", lines.empty() ? Json() : lines[0].at("kind")},
                 {"count", lines.size()},
                 {"failed", failed}};
  if (!good.empty()) {
    double logs = 0;
    std::size_t below = 0;
    for (const Json& line : good) {
      const double share = line.at("of_roofline").get<double>();
      logs += std::log(share);
      below += share < 0.25;
    }
    const auto count = static_cast<double>(good.size());
    result["geometric_mean"] = std::exp(logs / count);
    result["median"] = good[good.size() / 2].at("of_roofline");
    result["worst"] = good[0].at("of_roofline");
    result["below_quarter"] = static_cast<double>(below) / count;
  }
  good.resize(std::min<std::size_t>(5, good.size()));
  result["worst_draws"] = good;
  return result;
}

bool run(const Options& options, const std::function<void()>& prepare) {
  std::vector<const Kind*> chosen;
  if (options.kind == "all")
    for (const Kind& kind : kinds())
      chosen.push_back(&kind);
  else
    chosen.push_back(&kind_named(options.kind));
  std::vector<std::uint64_t> list;
  for (std::uint64_t i = 0; i < options.count && !options.only; ++i)
    list.push_back(i);
  if (options.only)
    list.push_back(*options.only);
  if (options.draws) {
    double mb = options.mb;
    if (mb <= 0) {
      prepare();
      mb = default_mb();
    }
    for (const Kind* kind : chosen)
      for (const std::uint64_t index : list)
        fmt::print("{}\n", drawn_line(*kind, options, mb, index).dump());
    return true;
  }
  if (!options.json)
    fmt::print("{:<12} {:>5} {:>10} {:>10} {:>6} {:<6} {:>7} {:>9}  {}\n", "kind", "index",
               "median ms", "floor ms", "share", "limit", "kernels", "compile s",
               "verified  parameters");
  bool all = true;
  for (const Kind* kind : chosen) {
    const Json found = summary(run_kind(*kind, options, list, prepare));
    all = all && found.at("failed").empty();
    print_summary(found, options);
    flush_stdout();
  }
  return all;
}

} // namespace egret::tool::sweep

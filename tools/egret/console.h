// What a command says and where: data on stdout, everything else on stderr, colours and a moving
// line on a terminal only.
#pragma once

#include "egret/effort.h"

#include <chrono>
#include <fmt/format.h>
#include <string>

namespace egret::tool {

enum ExitCode { kDone = 0, kFailed = 1, kUsage = 2 };

/// A user's mistake on the command line that the parser cannot see; ends the command with kUsage.
class UsageError : public std::runtime_error {
public:
  using std::runtime_error::runtime_error;
};

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();

enum class Style { Plain, Bold, Dim, Good, Bad };
/// `text` in a style when stderr is a terminal and NO_COLOR is not set (https://no-color.org), else
/// as it is.
std::string styled(Style style, const std::string& text);

/// A line on stderr. Nothing when set_quiet(true) was called.
void log_line(const std::string& text);
template <class... Args>
void log(fmt::format_string<Args...> format, Args&&... args) {
  log_line(fmt::format(format, std::forward<Args>(args)...));
}
void set_quiet(bool quiet);

/// Sends on what was printed to stdout; Error(File) when any of it was lost.
void flush_stdout();

/// The next line of stdin, false at its end. Error(File) for a line of more than `most` characters:
/// what has no end is not waited for.
bool next_line(std::string& line, std::size_t most = 1 << 16);

/// Tells how far a long task is. On a terminal lines that are rewritten in place, cut at its width;
/// elsewhere the first of them as a plain line every `every`.
class Progress {
public:
  explicit Progress(std::chrono::milliseconds every = std::chrono::seconds(5)) : every_(every) {}
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  /// Cheap when it is too early to show anything: `text` is a function that makes the line.
  template <class F>
  void update(F&& text, bool now = false) {
    if (due(now))
      show(text());
  }
  void finish(); ///< leaves the last line standing

private:
  bool due(bool now);
  void show(const std::string& text);

  std::chrono::milliseconds every_;
  std::chrono::steady_clock::time_point last_ = {};
  std::size_t open_ = 0; ///< lines on the terminal, the last one without its end
};

/// "search: kernel 2 of 3 (k_add), candidate 4 of 9, best 0.1 ms, 5 s of 60 s left", and on the
/// next line the best schedule, if there is one.
std::string progress_text(const SearchProgress& progress);
/// Seconds from `start` to now.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
std::string seconds_text(double seconds); ///< "0.8 s", "2 min 05 s"
std::string bytes_text(double bytes);     ///< "1.5 MB"
std::string count_text(double count);     ///< "12.3k"

} // namespace egret::tool

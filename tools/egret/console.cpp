#include "console.h"

#include "egret/error.h"
#include "support/fail.h"
#include "support/printable.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

namespace egret::tool {

namespace {

bool quiet = false;

std::string scaled(double value, const char* const* units, double step) {
  int unit = 0;
  while (value >= step && units[unit + 1] != nullptr) {
    value /= step;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", value, unit == 0 || value >= 100 ? 0 : 1, units[unit]);
}

std::size_t terminal_width() {
  winsize size = {};
  constexpr std::size_t kUsual = 80, kLeast = 20;
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
    return kUsual;
  return std::max<std::size_t>(kLeast, size.ws_col);
}

/// The lines of a text, those of a schedule tree broken at its parts; each narrower than `width`,
/// so that a terminal breaks none, and few enough for a small window.
std::vector<std::string> lines_within(const std::string& text, std::size_t width) {
  constexpr std::size_t kMostLines = 8;
  constexpr std::string_view kIndent = "    ";
  std::vector<std::string> lines;
  std::size_t at = 0;
  for (bool goes_on = false; at < text.size() && lines.size() < kMostLines;) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::size_t room = width - 1 - (goes_on ? kIndent.size() : 0);
    std::size_t length = end - at;
    if (length > room) {
      const std::size_t gap = text.find_last_of(" ,(", at + room - 1);
      length = gap == std::string::npos || gap < at + room / 2 ? room : gap + 1 - at;
    }
    lines.push_back((goes_on ? std::string(kIndent) : "") + text.substr(at, length));
    at += length;
    goes_on = at < end;
    if (at == end)
      ++at;
  }
  if (at < text.size())
    lines.back().replace(std::min(lines.back().size(), width - 4), std::string::npos, "...");
  return lines;
}

} // namespace

bool stdin_is_terminal() {
  return isatty(STDIN_FILENO) != 0;
}
bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) != 0;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) != 0;
}

std::string styled(Style style, const std::string& text) {
  static const bool colours = [] {
    const char* off = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return stderr_is_terminal() && (off == nullptr || *off == '\0') &&
           (term == nullptr || std::string(term) != "dumb");
  }();
  if (!colours)
    return text;
  switch (style) {
  case Style::Plain:
    return text;
  case Style::Bold:
    return "\033[1m" + text + "\033[0m";
  case Style::Dim:
    return "\033[2m" + text + "\033[0m";
  case Style::Good:
    return "\033[32m" + text + "\033[0m";
  case Style::Bad:
    return "\033[31m" + text + "\033[0m";
  }
  return text;
}

void set_quiet(bool value) {
  quiet = value;
}

void log_line(const std::string& text) {
  if (!quiet)
    std::fprintf(stderr, "%s\n", text.c_str());
}

void flush_stdout() {
  std::cout.flush();
  const bool written = std::fflush(stdout) == 0;
  const int error = errno;
  if (!written || std::ferror(stdout) != 0 || !std::cout)
    fail(ErrorKind::File, "cannot write the results to stdout{}",
         written ? "" : ": " + std::generic_category().message(error));
}

bool next_line(std::string& line, std::size_t most) {
  line.clear();
  int c = std::getc(stdin);
  for (; c != EOF && c != '\n'; c = std::getc(stdin)) {
    if (line.size() == most)
      fail(ErrorKind::File, "stdin: a line of more than {} characters", most);
    line += static_cast<char>(c);
  }
  return c != EOF || !line.empty();
}

Progress::~Progress() {
  finish();
}

bool Progress::due(bool now) {
  if (quiet)
    return false;
  auto time = std::chrono::steady_clock::now();
  auto wait = stderr_is_terminal() ? std::chrono::milliseconds(100) : every_;
  if (!now && time - last_ < wait)
    return false;
  last_ = time;
  return true;
}

void Progress::show(const std::string& text) {
  if (!stderr_is_terminal()) {
    std::fprintf(stderr, "%s\n", text.substr(0, text.find('\n')).c_str());
    return;
  }
  const std::vector<std::string> lines = lines_within(text, terminal_width());
  std::string shown = open_ > 1 ? fmt::format("\033[{}A", open_ - 1) : "";
  for (std::size_t i = 0; i < lines.size(); ++i)
    shown += fmt::format("{}\r{}\033[K", i > 0 ? "\n" : "", lines[i]);
  std::fprintf(stderr, "%s\033[J", shown.c_str()); // what was below, too
  std::fflush(stderr);
  open_ = lines.size();
}

void Progress::finish() {
  if (open_ > 0)
    std::fprintf(stderr, "\n");
  open_ = 0;
}

std::string progress_text(const SearchProgress& p) {
  // The one that is looked at; after the last one, that.
  const auto number = [](std::size_t done, std::size_t of) { return std::min(done + 1, of); };
  return fmt::format("search: kernel {} of {} ({}), candidate {} of {}{}, {} of {} left",
                     number(p.done, p.kernels), p.kernels, terminal_text(p.kernel),
                     number(p.candidate, p.candidates), p.candidates,
                     p.best_seconds > 0 ? fmt::format(", best {:.3g} ms", p.best_seconds * 1e3)
                                        : "",
                     seconds_text(std::max(0.0, p.budget_seconds - p.seconds)),
                     seconds_text(p.budget_seconds)) +
         (p.best_schedule.empty() ? "" : "\n  best: " + terminal_text(p.best_schedule));
}

std::string seconds_text(double seconds) {
  if (seconds < 60)
    return fmt::format("{:.1f} s", seconds);
  int whole = static_cast<int>(seconds);
  return fmt::format("{} min {:02} s", whole / 60, whole % 60);
}

std::string bytes_text(double bytes) {
  static const char* const units[] = {" B", " kB", " MB", " GB", " TB", nullptr};
  return scaled(bytes, units, 1000);
}

std::string count_text(double count) {
  static const char* const units[] = {"", "k", "M", "G", nullptr};
  return scaled(count, units, 1000);
}

} // namespace egret::tool

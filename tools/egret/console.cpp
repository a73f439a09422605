#include "console.h"

#include <cstdio>
#include <cstdlib>
#include <unistd.h>

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
  if (stderr_is_terminal()) {
    std::fprintf(stderr, "\r%s\033[K", text.c_str());
    std::fflush(stderr);
    open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
}

void Progress::finish() {
  if (open_)
    std::fprintf(stderr, "\n");
  open_ = false;
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

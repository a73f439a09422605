#include "backend/cuda/disassembly.h"

#include "support/child_process.h"
#include "support/fail.h"
#include "support/private_file.h"

#include <charconv>
#include <fstream>
#include <iterator>

namespace egret::backend::cuda {

namespace {

/// The number at the beginning of a text; 0 where there is none.
int leading_number(std::string_view text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// The line of the text that what follows is made from; -1: this line of a listing does not say.
int line_of_marker(std::string_view line) {
  constexpr std::string_view kPtx = ".loc", kSass = "//## File ", kSassLine = ", line ";
  if (line.starts_with(kPtx)) { // .loc FILE LINE COLUMN
    const std::size_t file = line.find_first_not_of(" \t", kPtx.size());
    const std::size_t gap = line.find_first_of(" \t", file);
    const std::size_t number = line.find_first_not_of(" \t", gap);
    return number == std::string_view::npos ? 0 : leading_number(line.substr(number));
  }
  if (!line.starts_with(kSass))
    return -1;
  const std::size_t at = line.find(kSassLine);
  return at == std::string_view::npos ? 0 : leading_number(line.substr(at + kSassLine.size()));
}

bool is_instruction(std::string_view line) {
  return line.find(';') != std::string_view::npos && line.front() != '.' && !line.starts_with("//");
}

/// By nvdisasm; empty where there is none, or where it cannot read the code.
std::string sass_of(const Nvrtc& compiler, std::string_view text, const std::string& architecture,
                    const std::string& name) {
  const TemporaryFolder folder("nvdisasm", "egret-cuda");
  const auto listing = folder / "listing", cubin = folder / "kernel.cubin";
  if (const Ended ended = run_process({"nvdisasm", "--version"}, {listing, {}});
      ended.error != 0 || ended.signal != 0 || ended.code != 0)
    return {};
  const Cubin made = compiler.compile(text, architecture, {.line_info = true}, name);
  if (write_private(cubin, made.code))
    return {};
  const Ended ended = run_process({"nvdisasm", "-c", "-g", cubin.string()}, {listing, {}});
  if (ended.error != 0 || ended.signal != 0 || ended.code != 0)
    return {};
  std::ifstream file(listing, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

} // namespace

std::string with_source_lines(std::string_view listing, int first_line) {
  std::string text;
  int source = 0;
  while (!listing.empty()) {
    const std::size_t end = std::min(listing.find('\n'), listing.size());
    std::string_view line = listing.substr(0, end);
    listing.remove_prefix(std::min(end + 1, listing.size()));
    line = line.substr(0, line.find('\0'));
    const std::size_t begin = line.find_first_not_of(" \t");
    const std::string_view words = begin == std::string_view::npos ? "" : line.substr(begin);
    if (words.starts_with(".section") && words.find(".debug") != std::string_view::npos)
      break; // of debuggers from here on
    if (words.starts_with(".file"))
      continue;
    if (const int marked = line_of_marker(words); marked >= 0) {
      source = marked;
      continue;
    }
    if (words.starts_with("}") || words.starts_with(".visible"))
      source = 0;
    text += line;
    if (source > 0 && !words.empty() && is_instruction(words))
      text += fmt::format("  // source {}", source + first_line - 1);
    text += '\n';
  }
  return text;
}

std::string disassembly(const Nvrtc& compiler, std::string_view text,
                        const std::string& architecture, const std::string& name, int first_line) {
  constexpr std::string_view kReal = "sm_";
  const bool real = architecture.starts_with(kReal);
  std::string listing = real ? sass_of(compiler, text, architecture, name) : "";
  if (listing.empty()) {
    const std::string virtual_one =
        real ? "compute_" + architecture.substr(kReal.size()) : architecture;
    listing = compiler.compile(text, virtual_one, {.line_info = true}, name).code;
  }
  return with_source_lines(listing, first_line);
}

} // namespace egret::backend::cuda

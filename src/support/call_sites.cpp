#include "support/call_sites.h"

#include "egret/error.h"
#include "support/child_process.h"
#include "support/read_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <dlfcn.h>
#include <execinfo.h>
#include <filesystem>
#include <link.h>
#include <map>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace egret::call_sites {
namespace {

constexpr int kMostFrames = 24;
constexpr std::size_t kMostPlaces = 1 << 16, kMostGraphs = 4096;

struct Site {
  std::vector<void*> frames; // return addresses, the innermost first
  std::string within;
  std::optional<Place> place;
  bool operator==(const Site& other) const {
    return frames == other.frames && within == other.within &&
           (!frames.empty() || place == other.place); // else the place is found later
  }
};

std::atomic<int> wanting{0};

/// What the places are: calls of operations refer to them for as long as they live.
struct Table {
  std::mutex mutex;
  std::vector<Site> sites; // by Id - 1
  std::unordered_multimap<std::uint64_t, Id> by_hash;
  std::unordered_map<std::uint64_t, std::vector<Id>> graphs;
};

Table& table() {
  static auto* const made = new Table; // outlives what is recorded late
  return *made;
}

std::string& ranges() noexcept {
  thread_local std::string path;
  return path;
}

std::uint64_t hash_of(const Site& site) {
  std::uint64_t hash = std::hash<std::string>()(site.within);
  if (site.frames.empty() && site.place)
    hash += std::hash<std::string>()(site.place->file) + static_cast<unsigned>(site.place->line);
  for (const void* frame : site.frames)
    hash = hash * 0x9e3779b97f4a7c15u + reinterpret_cast<std::uintptr_t>(frame);
  return hash;
}

struct Line {
  std::string file;
  int line = 0;
};

/// "main.cpp:12 (discriminator 3)"; nothing for "??:0".
std::optional<Line> parsed(std::string_view text) {
  text = text.substr(0, text.find(" ("));
  const std::size_t colon = text.rfind(':');
  int line = 0;
  if (colon == std::string_view::npos || text.starts_with("??") ||
      std::from_chars(text.data() + colon + 1, text.data() + text.size(), line).ec != std::errc() ||
      line <= 0)
    return std::nullopt;
  return Line{std::filesystem::path(text.substr(0, colon)).lexically_normal().string(), line};
}

/// By address, of what was inlined there too, the innermost first.
using Lines = std::map<std::uintptr_t, std::vector<Line>>;

/// Adds the lines of addresses in one file, of those that have one.
void find_lines(const std::string& module, const std::vector<std::uintptr_t>& addresses,
                std::uintptr_t bias, Lines& lines) {
  constexpr std::size_t kAtOnce = 2000; // addresses on a command line
  for (std::size_t begin = 0; begin < addresses.size(); begin += kAtOnce) {
    const TemporaryFolder folder("lines", "egret-lines");
    // -a: a line with the address before those that it has; -i: also of what was inlined.
    std::vector<std::string> command = {"addr2line", "-a", "-i", "-e", module};
    const std::size_t end = std::min(begin + kAtOnce, addresses.size());
    for (std::size_t i = begin; i < end; ++i)
      command.push_back(fmt::format("{:#x}", addresses[i] - bias));
    if (const Ended ended = run_process(command, {.output = folder / "out", .environment = {}});
        !ended.why_not_run().empty() || ended.code != 0)
      return;
    const std::string text = read_text(folder / "out");
    std::size_t next = begin;
    std::uintptr_t address = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t stop = std::min(text.find('\n', at), text.size());
      const std::string_view line = std::string_view(text).substr(at, stop - at);
      at = stop + 1;
      if (line.starts_with("0x")) {
        if (next == end)
          return;
        address = addresses[next++];
      } else if (auto found = parsed(line)) {
        lines[address].push_back(std::move(*found));
      }
    }
  }
}

/// The folder of egret's own sources, where it was compiled with lines; else empty.
std::string own_folder(const Lines& lines) {
  constexpr std::string_view kOwn = "support/call_sites.cpp";
  if (const auto own = lines.find(reinterpret_cast<std::uintptr_t>(&here)); own != lines.end())
    for (const Line& line : own->second)
      if (line.file.ends_with(kOwn))
        return line.file.substr(0, line.file.size() - kOwn.size());
  return {};
}

/// Whether a file is the user's: neither egret's own nor of the language.
bool is_users(std::string_view file, const std::string& own) {
  if (!own.empty() && file.starts_with(own))
    return false;
  return std::ranges::none_of(
      std::array<std::string_view, 3>{"/include/egret/", "/usr/include/", "/include/c++/"},
      [&](std::string_view part) { return file.find(part) != std::string_view::npos; });
}

/// Gives every site that has none its place. Needs table.mutex.
void locate_all(Table& table) {
  struct Module {
    std::uintptr_t bias = 0;
    std::vector<std::uintptr_t> addresses;
  };
  std::map<std::string, Module> modules;
  const auto ask = [&](std::uintptr_t address) {
    Dl_info info = {};
    link_map* map = nullptr;
    if (dladdr1(reinterpret_cast<void*>(address), &info, reinterpret_cast<void**>(&map),
                RTLD_DL_LINKMAP) == 0 ||
        !map)
      return;
    Module& module = modules[*map->l_name != '\0' ? map->l_name : "/proc/self/exe"];
    module.bias = map->l_addr;
    module.addresses.push_back(address);
  };
  if (std::ranges::all_of(table.sites, [](const Site& site) { return site.place.has_value(); }))
    return;
  // A return address is behind its call, which may be the last of a line.
  const auto call_of = [](void* frame) { return reinterpret_cast<std::uintptr_t>(frame) - 1; };
  ask(reinterpret_cast<std::uintptr_t>(&here));
  for (const Site& site : table.sites)
    if (!site.place)
      for (void* frame : site.frames)
        ask(call_of(frame));
  Lines lines;
  for (auto& [name, module] : modules) {
    std::ranges::sort(module.addresses);
    module.addresses.erase(std::unique(module.addresses.begin(), module.addresses.end()),
                           module.addresses.end());
    std::error_code error;
    const auto path = std::filesystem::canonical(name, error); // the child's /proc/self is another
    if (!error)
      find_lines(path.string(), module.addresses, module.bias, lines);
  }
  const std::string own = own_folder(lines);
  const auto users_line = [&](const Site& site) -> const Line* {
    for (void* frame : site.frames)
      if (const auto found = lines.find(call_of(frame)); found != lines.end())
        for (const Line& line : found->second)
          if (is_users(line.file, own))
            return &line;
    return nullptr;
  };
  for (Site& site : table.sites) {
    if (site.place)
      continue;
    site.place = Place{"", 0, site.within};
    if (const Line* line = users_line(site)) {
      site.place->file = line->file;
      site.place->line = line->line;
    }
  }
}

Id known(Site site) {
  const std::uint64_t hash = hash_of(site);
  Table& all = table();
  std::lock_guard lock(all.mutex);
  for (auto [at, end] = all.by_hash.equal_range(hash); at != end; ++at)
    if (all.sites[at->second - 1] == site)
      return at->second;
  if (all.sites.size() == kMostPlaces)
    return 0;
  all.sites.push_back(std::move(site));
  const Id id = static_cast<Id>(all.sites.size());
  all.by_hash.emplace(hash, id);
  return id;
}

} // namespace

Wanted::Wanted() noexcept {
  wanting.fetch_add(1, std::memory_order_relaxed);
}
Wanted::~Wanted() {
  if (wanting.fetch_sub(1, std::memory_order_relaxed) != 1)
    return;
  Table& all = table();
  std::lock_guard lock(all.mutex);
  all.graphs.clear();
}

bool wanted() noexcept {
  return wanting.load(std::memory_order_relaxed) > 0;
}

Id here() {
  if (!wanted())
    return 0;
  std::array<void*, kMostFrames> frames = {};
  const int count = ::backtrace(frames.data(), kMostFrames);
  // Without here() itself. Braces would make a list of the two iterators, which convert to void*.
  std::vector<void*> callers(frames.begin() + std::min(count, 1), frames.begin() + count);
  return known({std::move(callers), ranges(), {}});
}

Id gradient_of(Id id) {
  constexpr std::string_view kGradient = "gradient";
  Site site;
  {
    Table& all = table();
    std::lock_guard lock(all.mutex);
    if (id == 0 || id > all.sites.size() || all.sites[id - 1].within.starts_with(kGradient))
      return id; // of a gradient's gradient too
    site.frames = all.sites[id - 1].frames;
    site.within = all.sites[id - 1].within;
  }
  site.within = std::string(kGradient) + (site.within.empty() ? "" : "/") + site.within;
  return known(std::move(site));
}

Id at(std::string_view file, int line) {
  return known({{}, "", Place{std::string(file), line, ""}});
}

void open_range(std::string_view name) {
  std::string& path = ranges();
  if (!path.empty())
    path += '/';
  // A slash in a name would be two ranges, which are closed one by one.
  for (const char c : name)
    path += c == '/' ? '|' : c;
}

void close_range() noexcept {
  std::string& path = ranges();
  const std::size_t last = path.rfind('/');
  path.resize(last == std::string::npos ? 0 : last);
}

const std::string& open_ranges() noexcept {
  return ranges();
}

void note(std::uint64_t hash, std::vector<Id> places) {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  if (wanted() && all.graphs.size() < kMostGraphs)
    all.graphs.insert_or_assign(hash, std::move(places));
}

std::vector<Id> places_of(std::uint64_t hash, std::size_t size) {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  const auto found = all.graphs.find(hash);
  return found != all.graphs.end() && found->second.size() == size ? found->second
                                                                   : std::vector<Id>();
}

std::vector<Place> locate(std::span<const Id> ids) {
  Table& all = table();
  std::lock_guard lock(all.mutex);
  try {
    locate_all(all);
  } catch (const Error&) { // no folder for temporary files: ranges are known all the same
  }
  std::vector<Place> places;
  for (const Id id : ids)
    places.push_back(id > 0 && id <= all.sites.size() && all.sites[id - 1].place
                         ? *all.sites[id - 1].place
                         : Place());
  return places;
}

} // namespace egret::call_sites

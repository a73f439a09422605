#include "backend/cuda/cubin_cache.h"

#include "backend/cuda/files.h"
#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/hash.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <iterator>

namespace egret::backend::cuda {

namespace fs = std::filesystem;

namespace {

// An entry: the mark, the hash of all that follows, the seconds, the log's size, log, code.
constexpr std::string_view kMark = "egret cubin 1\n";
constexpr std::size_t kHead = kMark.size() + 3 * sizeof(std::uint64_t);

void append(std::string& to, const void* word) {
  to.append(static_cast<const char*>(word), sizeof(std::uint64_t));
}

std::string packed(const Cubin& cubin) {
  const std::uint64_t log_size = cubin.log.size();
  std::string body;
  append(body, &cubin.seconds);
  append(body, &log_size);
  body += cubin.log;
  body += cubin.code;
  const std::uint64_t check = hash_text(body);
  std::string entry(kMark);
  append(entry, &check);
  return entry + body;
}

std::optional<Cubin> unpacked(std::string_view entry) {
  if (entry.size() < kHead || !entry.starts_with(kMark))
    return std::nullopt;
  const std::string_view body = entry.substr(kMark.size() + sizeof(std::uint64_t));
  std::uint64_t check = 0, log_size = 0;
  std::memcpy(&check, entry.data() + kMark.size(), sizeof check);
  if (check != hash_text(body))
    return std::nullopt;
  Cubin cubin;
  std::memcpy(&cubin.seconds, body.data(), sizeof cubin.seconds);
  std::memcpy(&log_size, body.data() + 8, sizeof log_size);
  if (log_size > body.size() - 16)
    return std::nullopt;
  cubin.log = body.substr(16, log_size);
  cubin.code = body.substr(16 + log_size);
  cubin.cached = true;
  cubin.kernels = resources_of_log(cubin.log);
  if (cubin.kernels.empty())
    cubin.kernels = resources_of_cubin(cubin.code);
  return cubin;
}

} // namespace

CubinCache::CubinCache(std::optional<fs::path> folder, std::uint64_t limit)
    : folder_(std::move(folder)), limit_(limit) {}

CubinCache& CubinCache::instance() {
  static auto* const cache = [] {
    auto folder = cache_folder();
    return new CubinCache(folder ? std::optional(*folder / "cubin") : std::nullopt);
  }();
  return *cache;
}

fs::path CubinCache::path_of(const Nvrtc& nvrtc, std::string_view text,
                             const std::string& architecture, const NvrtcOptions& options) const {
  std::uint64_t key = combine(hash_text(architecture), static_cast<std::uint64_t>(nvrtc.version()));
  key = combine(key, static_cast<std::uint64_t>(options.max_registers));
  key = combine(key, options.line_info);
  // Two hashes of the text, of which the second depends on the key: 128 bits in all.
  const std::uint64_t first = combine(key, hash_text(text));
  std::uint64_t second = key;
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + i, std::min<std::size_t>(8, text.size() - i));
    second = combine(second, word);
  }
  return folder_.value_or(fs::path()) / fmt::format("{:016x}{:016x}.cubin", first, second);
}

std::optional<Cubin> CubinCache::read(const fs::path& path) const {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return std::nullopt;
  const std::string entry((std::istreambuf_iterator<char>(file)), {});
  try {
    if (auto cubin = unpacked(entry)) {
      std::error_code ignored; // when it was used last, for prune()
      fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
      return cubin;
    }
  } catch (const Error&) { // code that is no cubin: damaged before its hash was taken
  }
  return std::nullopt;
}

Cubin CubinCache::get(const Nvrtc& nvrtc, std::string_view text, const std::string& architecture,
                      const NvrtcOptions& options, const std::string& name) {
  if (!folder_)
    return nvrtc.compile(text, architecture, options, name);
  const fs::path path = path_of(nvrtc, text, architecture, options);
  if (auto found = read(path))
    return std::move(*found);
  Cubin cubin = nvrtc.compile(text, architecture, options, name);
  static std::atomic<unsigned> written{0};
  if (write_atomically(path, packed(cubin)) && written++ % 64 == 0)
    prune();
  return cubin;
}

void CubinCache::prune() const {
  if (!folder_)
    return;
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t sum = 0;
  std::error_code error;
  for (auto it = fs::directory_iterator(*folder_, error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    std::error_code gone; // another process may remove entries at the same time
    Entry entry{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone)
      continue;
    sum += entry.bytes;
    entries.push_back(std::move(entry));
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (sum <= limit_)
      break;
    fs::remove(entry.path, error);
    sum -= entry.bytes;
  }
}

} // namespace egret::backend::cuda

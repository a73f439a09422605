#include "support/object_cache.h"

#include "support/cache_folder.h"
#include "support/fail.h"
#include "support/private_file.h"
#include "support/temporary_file.h"
#include "support/warn.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace egret {

namespace fs = std::filesystem;

namespace {

// A file: the mark, the hash of all that follows, the key, the version's size, version, object.
constexpr std::string_view kMark = "egret object 1\n\n";
constexpr std::size_t kBody = kMark.size() + sizeof(Hash128);
constexpr std::size_t kHead = kBody + sizeof(Hash128) + sizeof(std::uint64_t);
constexpr std::string_view kExtension = ".object";

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

template <class T>
T word_at(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::string packed(const Hash128& key, std::string_view version, std::string_view object) {
  std::string body;
  body.reserve(kHead + version.size() + object.size());
  body += bytes_of(key);
  body += bytes_of(std::uint64_t{version.size()});
  body += version;
  body += object;
  std::string file(kMark);
  file += bytes_of(hash128(body));
  return file += body;
}

struct Unpacked {
  std::string_view version, object;
  const char* wrong = nullptr; ///< what the file is, if it is none of ours that is whole
};

Unpacked unpacked(std::string_view file, std::optional<Hash128> key) {
  if (file.size() < kHead || !file.starts_with(kMark))
    return {{}, {}, "it is cut short or of another format"};
  const std::string_view body = file.substr(kBody);
  if (word_at<Hash128>(file, kMark.size()) != hash128(body))
    return {{}, {}, "it is damaged"};
  const auto version = word_at<std::uint64_t>(file, kHead - sizeof(std::uint64_t));
  if (version > file.size() - kHead)
    return {{}, {}, "it is damaged"};
  if (key && word_at<Hash128>(file, kBody) != *key)
    return {{}, {}, "it is another object's"};
  return {file.substr(kHead, version), file.substr(kHead + version)};
}

// The key that a file's name says.
std::optional<Hash128> key_of(const fs::path& path) {
  const std::string name = path.stem().string();
  Hash128 key;
  const char *begin = name.data(), *middle = begin + 16, *end = begin + name.size();
  if (name.size() != 32 || path.extension() != kExtension ||
      std::from_chars(begin, middle, key.high, 16).ptr != middle ||
      std::from_chars(middle, end, key.low, 16).ptr != end)
    return std::nullopt;
  return key;
}

} // namespace

struct ObjectCache::Impl {
  std::optional<fs::path> root;
  fs::path folder;
  std::string version;
  std::uint64_t limit;
  std::atomic<bool> warned{false}, writable{true};
  std::atomic<unsigned> written{0};

  void warn_once(const fs::path& path, const std::string& why) {
    if (!warned.exchange(true))
      warn("kernel cache: {}: {}; it is made anew, and no more is said of others", path.string(),
           why);
  }

  // Calls with each file's path; other processes may remove files at the same time.
  void each(const std::function<void(const fs::path&)>& visit) const {
    std::error_code error;
    for (auto it = fs::directory_iterator(folder, error); !error && it != fs::directory_iterator();
         it.increment(error))
      visit(it->path());
  }

  /// No object of this version.
  bool is_stale(const fs::path& path) const {
    const std::string object = read_private(path).bytes.value_or("");
    const Unpacked found = unpacked(object, key_of(path));
    return found.wrong || found.version != version;
  }
};

ObjectCache::ObjectCache(std::optional<fs::path> root, std::string_view kind,
                         std::string_view version, std::uint64_t limit)
    : impl_(std::make_unique<Impl>()) {
  impl_->root = std::move(root);
  if (impl_->root)
    impl_->folder = *impl_->root / "objects" / kind;
  impl_->version = version;
  impl_->limit = limit;
}
ObjectCache::~ObjectCache() = default;

bool ObjectCache::enabled() const noexcept {
  return impl_->root && impl_->limit > 0;
}

const fs::path& ObjectCache::folder() const noexcept {
  return impl_->folder;
}

std::uint64_t ObjectCache::limit() const noexcept {
  return impl_->limit;
}

fs::path ObjectCache::path_of(const Hash128& key) const {
  return impl_->folder / (key.hex() + std::string(kExtension));
}

std::optional<std::string> ObjectCache::find(const Hash128& key) {
  if (!enabled())
    return std::nullopt;
  const fs::path path = path_of(key);
  PrivateRead read = read_private(path);
  if (!read.refused.empty())
    impl_->warn_once(path, read.refused);
  if (!read.bytes)
    return std::nullopt;
  const Unpacked found = unpacked(*read.bytes, key);
  if (found.wrong) {
    impl_->warn_once(path, found.wrong);
    return std::nullopt;
  }
  mark_used(path); // for prune()
  return std::string(found.object);
}

void ObjectCache::keep(const Hash128& key, std::string_view object) {
  if (!enabled() || !impl_->writable)
    return;
  if (const auto error = write_private(path_of(key), packed(key, impl_->version, object))) {
    impl_->writable = false;
    warn_unwritable(*impl_->root, error.message());
    return;
  }
  if (impl_->written++ % 64 == 0)
    prune(impl_->limit);
}

void ObjectCache::reject(const Hash128& key, const std::string& why) {
  const fs::path path = path_of(key);
  impl_->warn_once(path, why);
  std::error_code ignored;
  fs::remove(path, ignored);
}

ObjectCacheStats ObjectCache::stats() const {
  ObjectCacheStats stats;
  impl_->each([&](const fs::path& path) {
    std::error_code gone;
    const auto bytes = fs::file_size(path, gone);
    if (gone || !key_of(path))
      return;
    ++stats.objects;
    stats.bytes += bytes;
    stats.stale += impl_->is_stale(path);
  });
  return stats;
}

std::int64_t ObjectCache::prune(std::uint64_t limit) const {
  struct Entry {
    fs::file_time_type used;
    std::uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  std::uint64_t sum = 0;
  remove_abandoned(impl_->folder);
  impl_->each([&](const fs::path& path) {
    std::error_code gone;
    Entry entry{fs::last_write_time(path, gone), 0, path};
    if (!gone)
      entry.bytes = fs::file_size(path, gone);
    if (gone)
      return;
    if (is_temporary(path))
      return;
    sum += entry.bytes;
    entries.push_back(std::move(entry));
  });
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  std::int64_t removed = 0;
  for (const Entry& entry : entries) {
    if (sum <= limit)
      break;
    std::error_code gone;
    removed += fs::remove(entry.path, gone);
    sum -= entry.bytes;
  }
  return removed;
}

std::int64_t ObjectCache::prune_stale() const {
  std::int64_t removed = 0;
  impl_->each([&](const fs::path& path) {
    std::error_code gone;
    if (!is_temporary(path) && impl_->is_stale(path))
      removed += fs::remove(path, gone);
  });
  return removed;
}

std::vector<std::string> ObjectCache::verify() const {
  std::vector<std::string> problems;
  impl_->each([&](const fs::path& path) {
    if (is_temporary(path))
      return;
    const PrivateRead read = read_private(path);
    const char* wrong = nullptr;
    if (!key_of(path))
      wrong = "its name is not that of an object";
    else if (read.bytes)
      wrong = unpacked(*read.bytes, key_of(path)).wrong;
    if (wrong || !read.refused.empty())
      problems.push_back(fmt::format("{}: {}", path.string(), wrong ? wrong : read.refused));
  });
  return problems;
}

std::uint64_t object_limit_of_environment() {
  const char* text = std::getenv("EGRET_OBJECTS_MB");
  if (!text || !*text)
    return ObjectCache::kDefaultLimit;
  std::uint64_t megabytes = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, megabytes);
  if (error != std::errc() || stop != end || megabytes > 1'000'000)
    fail(ErrorKind::Value, "EGRET_OBJECTS_MB: \"{}\" is no number from 0 to 1000000", text);
  return megabytes << 20;
}

} // namespace egret

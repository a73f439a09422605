#include "support/cache_folder.h"

#include "support/warn.h"

#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

namespace egret {

namespace fs = std::filesystem;

std::optional<fs::path> cache_folder() {
  if (const char* own = std::getenv("EGRET_CACHE"); own && *own)
    return std::string_view(own) == "off" ? std::nullopt : std::optional<fs::path>(own);
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg == '/')
    return fs::path(xdg) / "egret";
  if (const char* home = std::getenv("HOME"); home && *home == '/')
    return fs::path(home) / ".cache" / "egret";
  return std::nullopt;
}

void warn_unwritable(const fs::path& folder, const std::string& why) {
  static std::mutex guard;
  static std::set<fs::path> told;
  {
    std::lock_guard lock(guard);
    if (!told.insert(folder).second)
      return;
  }
  warn("cache folder: {} cannot be written to ({}); what is compiled and measured now is not kept",
       folder.string(), why);
}

} // namespace egret

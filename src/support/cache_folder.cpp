#include "support/cache_folder.h"

#include <cstdlib>
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

} // namespace egret

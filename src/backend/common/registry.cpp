#include "backend/common/registry.h"

#include "support/fail.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>

namespace egret::backend {

BackendRegistry::BackendRegistry(std::vector<Backend> backends) : backends_(std::move(backends)) {
  ensure(!backends_.empty(), "there is no backend");
}

DeviceName BackendRegistry::parse(std::string_view name, std::string_view who) const {
  const std::size_t colon = name.find(':');
  const std::string_view kind = name.substr(0, colon);
  const auto found = std::find_if(backends_.begin(), backends_.end(),
                                  [&](const Backend& b) { return b.name == kind; });
  if (found != backends_.end() && colon == std::string_view::npos)
    return {std::string(kind), 0};
  if (found != backends_.end() && found->numbered) {
    DeviceName device{std::string(kind), -1};
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + colon + 1, end, device.index);
    if (read.ec == std::errc{} && read.ptr == end && device.index >= 0)
      return device;
  }
  std::string names;
  for (const Backend& b : backends_)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", b.name);
  for (const Backend& b : backends_)
    if (b.numbered) {
      names += fmt::format(", or {0}:0, {0}:1 ...", b.name);
      break;
    }
  fail(ErrorKind::Value, "{}: `{}` is no device: {} name one", who, name, names);
}

const Backend& BackendRegistry::backend_of(const DeviceName& name) const {
  const auto found = std::find_if(backends_.begin(), backends_.end(),
                                  [&](const Backend& b) { return b.name == name.backend; });
  ensure(found != backends_.end(), "there is no backend {}", name.backend);
  return *found;
}

std::string BackendRegistry::text(const DeviceName& name) const {
  return backend_of(name).numbered ? fmt::format("{}:{}", name.backend, name.index) : name.backend;
}

std::unique_ptr<Device> BackendRegistry::open(const DeviceName& name) const {
  return backend_of(name).open(name.index);
}

std::vector<FoundDevice> BackendRegistry::usable_devices() const {
  std::vector<FoundDevice> all;
  for (const Backend& b : backends_)
    if (Diagnosis found = b.diagnose(); found.usable)
      std::copy_if(found.devices.begin(), found.devices.end(), std::back_inserter(all),
                   [](const FoundDevice& d) { return d.usable; });
  return all;
}

Diagnosis BackendRegistry::diagnose(const DeviceName& name) const {
  return backend_of(name).diagnose();
}

std::string BackendRegistry::choices() const {
  std::vector<std::string> names;
  for (const Backend& b : backends_) {
    names.emplace_back(b.name);
    if (b.numbered)
      names.push_back(fmt::format("{}:N", b.name));
  }
  std::string text = names[0];
  for (std::size_t i = 1; i < names.size(); ++i)
    text += (i + 1 == names.size() ? " or " : ", ") + names[i];
  return text;
}

} // namespace egret::backend

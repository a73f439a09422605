#include "backend/common/device_name.h"

#include "support/fail.h"

#include <charconv>

namespace egret::backend {

DeviceName parse_device(std::string_view name, std::string_view who) {
  if (name == "cpu")
    return {};
  if (name == "cuda")
    return {true, 0};
  if (name.starts_with("cuda:")) {
    DeviceName device{true, -1};
    const char* end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + 5, end, device.index);
    if (read.ec == std::errc{} && read.ptr == end && device.index >= 0)
      return device;
  }
  fail(ErrorKind::Value, "{}: `{}` is no device: cpu, cuda, or cuda:0, cuda:1 ... name one", who,
       name);
}

} // namespace egret::backend

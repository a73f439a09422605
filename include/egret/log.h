// What the library has to say without being asked: nothing is printed, a hook may listen.
#pragma once

#include <functional>
#include <string>

namespace egret {

/// `hook` is called with each warning from now on, by any thread, one call at a time; an empty one
/// drops them, as at the start. Warnings tell of what went on with less than it should have had: a
/// damaged cache that was started afresh, a folder that cannot be written to. The hook must not
/// call into egret.
void on_warning(std::function<void(const std::string& text)> hook);

} // namespace egret

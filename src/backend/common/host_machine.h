// What every backend that runs on this machine's processor has to know of it.
#pragma once

#include "kernel/target.h"

#include <string_view>

namespace egret::backend {

/// The value of an environment variable, empty when it is not set.
std::string_view environment(const char* name);

/// `asked` workers, or for 0: EGRET_THREADS, or else the cores that this process may use: its
/// affinity mask, bounded by its cgroup's share. Error(Value) that begins with `who` when a number
/// is not sensible.
int count_workers(int asked, std::string_view who);

/// Sets the sizes of the caches, where the system says them.
void read_caches(kernel::Target& target);

} // namespace egret::backend

// Schedules of kernels that a user asks for by name, and their text: one line a kernel,
//
//   map_tanh_add = loops @tree=for(0,64,8,core,for(0,8,1,vector,body(0)))
//   reduce_sum#2 = rows lanes=8      # the second of the kernels that are called reduce_sum
#pragma once

#include "kernel/generator.h"
#include "kernel/plan.h"

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace egret::compiler {

/// By kernel: its name, with `#` and its number from 1 where several kernels have that name.
using RequestedSchedules = std::map<std::string, std::string>;

/// Reads lines as above; empty lines and those that start with `#` are comments. Error(Parse) with
/// `who` and the line for others and for a kernel that stands twice.
RequestedSchedules parse_requested_schedules(std::string_view text, std::string_view who);

/// By region: the kernel of the schedule that is asked for, where one is. Error(Value) for a name
/// that no region or several have, for text that is no schedule, and for a schedule that does not
/// fit its region, with the reason.
std::map<std::size_t, kernel::Chosen>
lower_requested(const RequestedSchedules& requested, std::span<const kernel::Region* const> regions,
                const kernel::Target& target);

/// The kernels' schedules as text to be edited and read again: the schedule tree where there is
/// one, for what else has a schedule that schedule.
std::string schedules_text(std::span<const kernel::KernelEntry> kernels,
                           const kernel::Target& target);

} // namespace egret::compiler

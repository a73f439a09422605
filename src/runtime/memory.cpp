#include "egret/memory.h"

#include "backend/all/backends.h"
#include "runtime/runtime.h"

#include <fmt/format.h>

namespace egret {
namespace {

runtime::Pool& pool_of(const std::string& device, const char* who) {
  return runtime::Runtime::instance().pool(backend::backends().parse(device, who));
}

} // namespace

MemoryStats memory_stats(const std::string& device) {
  return pool_of(device, "memory_stats").stats();
}

void set_memory_limit(const std::string& device, std::uint64_t bytes) {
  pool_of(device, "set_memory_limit").set_limit(bytes);
}

std::uint64_t trim(const std::string& device) {
  return pool_of(device, "trim").trim();
}

void reset_memory_peak(const std::string& device) {
  pool_of(device, "reset_memory_peak").reset_peak();
}

std::string MemoryStats::text() const {
  return fmt::format("in use             {}\nof values          {}\nof programs        {}\n"
                     "peak               {}\nreserved           {}\nlimit              {}\n"
                     "allocations        {}\nsystem allocations {}\ndevice free        {}\n"
                     "device total       {}\n",
                     in_use, values, programs, peak, reserved, limit, allocations,
                     system_allocations, device_free, device_total);
}

} // namespace egret

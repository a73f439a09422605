// Any text as a schedule, and as the fusion plan of a program: an Error(Parse), or what prints to a
// text that parses back equal.
#include "kernel/schedule.h"
#include "compiler/search/fusion_plans.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace {

template <class Parse>
void parse_and_print(std::string_view text, Parse parse) {
  try {
    const auto value = parse(text);
    if (!(parse(to_string(value)) == value))
      std::abort();
  } catch (const egret::Error& error) {
    if (error.kind() != egret::ErrorKind::Parse)
      std::abort();
  }
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  parse_and_print(text, egret::kernel::parse_schedule);
  parse_and_print(text, egret::compiler::parse_fusion_plan);
  return 0;
}

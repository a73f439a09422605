// A tool that watches this process and shows what the program calls its parts.
#pragma once

namespace egret::backend {

/// Ranges of each thread are within one another: the last one that began ends first.
struct RangeTool {
  void (*push)(const char* name);
  void (*pop)();
};

} // namespace egret::backend

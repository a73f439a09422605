// A code generator that was built from other sources than the library that loads it.
#include "backend/cpu/code_generator.h"

extern "C" const egret::backend::cpu::CodeGeneratorLibrary* egret_code_generator() {
  static constexpr egret::backend::cpu::CodeGeneratorLibrary library{};
  return &library;
}

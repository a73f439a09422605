#include "backend/c/backend.h"

#include "backend/c/c_device.h"
#include "backend/c/compiler.h"
#include "egret/error.h"

#include <fmt/format.h>

namespace egret::backend::c {

namespace {

Diagnosis diagnose() {
  try {
    const Compiler compiler = Compiler::find();
    const std::string found = fmt::format("{} ({})", compiler.version(), compiler.command());
    return {
        true, {}, {{"compiler", found}}, {{"c", true, "this machine's processor, by " + found}}};
  } catch (const Error& error) {
    return {false, error.what(), {{"compiler", ""}}, {{"c", false, error.what()}}};
  }
}

} // namespace

Backend backend() {
  Backend c;
  c.name = "c";
  c.diagnose = diagnose;
  c.open = [](int) { return make_c_device(0, &user_objects()); };
  c.cache = user_objects;
  return c;
}

} // namespace egret::backend::c

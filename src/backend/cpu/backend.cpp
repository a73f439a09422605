#include "backend/cpu/backend.h"

#include "backend/cpu/cpu_device.h"

namespace egret::backend::cpu {

Backend backend() {
  Backend cpu;
  cpu.name = "cpu";
  cpu.diagnose = [] {
    return Diagnosis{true, {}, {}, {{"cpu", true, "this machine's processor"}}};
  };
  cpu.open = [](int) { return make_cpu_device(0, &user_objects()); };
  cpu.cache = user_objects;
  return cpu;
}

} // namespace egret::backend::cpu

#include "support/fake_cuda/fake_cuda.h"

#include <dlfcn.h>

#include <stdexcept>

namespace egret::testing {

FakeCuda& fake_cuda(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw std::runtime_error(dlerror());
  auto state = reinterpret_cast<FakeCuda* (*)()>(dlsym(library, "fake_cuda_state"));
  FakeCuda& fake = *state();
  const std::size_t used = fake.used; // of devices that live on
  fake = FakeCuda{};
  fake.used = used;
  return fake;
}

} // namespace egret::testing

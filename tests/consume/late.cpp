// A program that is not linked with egret opens the library while it runs. That needs what the
// library keeps for each thread to fit into what the loader sets aside for such libraries.
#include <cstdio>
#include <dlfcn.h>

int main() {
  void* library = dlopen(EGRET_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    std::fprintf(stderr, "late: %s\n", dlerror());
    return 1;
  }
  return 0;
}

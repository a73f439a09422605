// Uses the installed library from outside: a call into it, and an error of its own type caught
// across the border.
#include <egret/error.h>

#include <cstring>

int main() {
  return std::strcmp(egret::name_of(egret::ErrorKind::Shape), "shape") == 0 ? 0 : 1;
}
